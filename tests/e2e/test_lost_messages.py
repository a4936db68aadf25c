"""Messages that a log has lost, to damage or with files: every place that reports them agrees, and each counts once."""

import json
import re

import pytest

from nsqc.commands.app import run
from tests.support.daemon import Daemon, wait_until

FLAGS = ("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=1000")
BODIES = [b"%03d" % number + b"x" * 97 for number in range(40)]


def filled(daemon, *channels: str) -> Daemon:
    """A stopped daemon whose topic has several segments, all of them finished."""
    node = daemon(*FLAGS)
    node.post("/topic/create?topic=t")
    for channel in channels:
        node.post(f"/channel/create?topic=t&channel={channel}")
    producer = node.connect()
    for body in BODIES:
        producer.pub("t", body)
    for channel in channels:
        assert node.connect().sub("t", channel, 50).messages(len(BODIES), finish=True)
        wait_until(lambda name=channel: node.channel("t", name)["in_flight_count"] == 0)
    assert node.stop() == 0
    return node


def segments(node: Daemon) -> list:
    return sorted((node.data_path / "t.log").glob("*.log"))


def state(node: Daemon) -> dict:
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])


def reports(node: Daemon) -> dict[str, tuple[int, int]]:
    """Damaged and missing messages, by reporting place; places without any are omitted."""
    log = state(node)
    metrics = dict(re.findall(r'^nsqc_topic_log_(damaged|missing)\{topic="t"\} (\d+)$',
                              node.http("GET", "/metrics")[1].decode(), re.MULTILINE))
    found = {"log": (log["damaged"], log["missing"]), "metrics": (int(metrics["damaged"]), int(metrics["missing"]))}
    if "log" in (stats := node.stats("t")):
        found["stats"] = stats["log"]["damaged"], stats["log"]["missing"]
    status, answer = node.http("GET", "/readyz")
    assert (status, json.loads(answer)["ready"], json.loads(answer)["reasons"]) == (200, True, [])
    for line in json.loads(answer).get("details", ()):
        damaged, missing = re.fullmatch(r"the log of t has lost messages: (\d+) damaged, (\d+) missing", line).groups()
        found["readyz"] = int(damaged), int(missing)
    return found


def everywhere(damaged: int, missing: int) -> dict[str, tuple[int, int]]:
    return dict.fromkeys(("log", "metrics", "stats", "readyz"), (damaged, missing))


def test_a_sound_log_reports_nothing(daemon):
    node = filled(daemon)
    node.start()
    assert reports(node) == {"log": (0, 0), "metrics": (0, 0)}


def test_damage_counts_once(daemon):
    node = filled(daemon, "a", "b")
    data = bytearray(segments(node)[1].read_bytes())
    for number in (6, 8):
        data[data.index(BODIES[number]) + 50] ^= 1
    segments(node)[1].write_bytes(data)
    node.start()
    assert reports(node) == {"log": (0, 0), "metrics": (0, 0)}     # nothing has read them yet
    for _ in range(2):
        for channel in ("a", "b"):
            node.post(f"/channel/seek?topic=t&channel={channel}&to=beginning")
            consumer = node.connect().sub("t", channel, 50)
            assert [message.body for message in consumer.messages(38, finish=True)] == [
                body for body in BODIES if body not in (BODIES[6], BODIES[8])]
            consumer.close()
    assert reports(node) == everywhere(2, 0)
    node.post("/topic/delete?topic=t")
    assert "details" not in json.loads(node.http("GET", "/readyz")[1])


def test_damage_that_a_reader_finds(daemon):
    node = filled(daemon)
    data = bytearray(segments(node)[1].read_bytes())
    data[data.index(BODIES[7]) + 50] ^= 1
    segments(node)[1].write_bytes(data)
    node.start()
    for _ in range(2):
        assert b'"offset":8,' in node.http("GET", "/topic/read?topic=t&offset=7")[1]
    assert reports(node) == everywhere(1, 0)
    wait_until(lambda: "LOG(t): 1 damaged messages before offset 8 are skipped" in node.log)


def test_damage_that_a_start_finds(daemon):
    """After a kill, a start searches for the end of the newest segment and counts damage before it; a channel that
    reads that damage adds nothing."""
    node = filled(daemon, "a")
    node.start()
    producer = node.connect()
    for body in (sound := [b"sound 1" + b"x" * 93, b"damaged" + b"x" * 93, b"sound 2" + b"x" * 93]):
        producer.pub("t", body)
    node.kill()
    path = segments(node)[-1]
    path.write_bytes(path.read_bytes().replace(b"damaged", b"DAMAGED"))
    node.start()
    assert reports(node) == everywhere(1, 0)
    assert [message.body for message in node.connect().sub("t", "a", 10).messages(2)] == sound[::2]
    assert reports(node) == everywhere(1, 0)


@pytest.mark.parametrize("channels", [(), ("a",)], ids=["no channels", "a channel"])
@pytest.mark.parametrize("which", ["last", "only", "middle"])
def test_segments_that_are_gone(daemon, capsys, which, channels):
    node = filled(daemon, *channels)
    files = segments(node)
    gone = {"last": files[-1:], "only": files, "middle": files[1:2]}[which]
    lost = (int(files[2].stem) if which == "middle" else len(BODIES)) - int(gone[-1].stem)
    for path in gone:
        path.unlink()
    assert run(["log", "verify", str(node.data_path)]) == 1
    assert "are gone" in (said := capsys.readouterr()[0]) or "is gone" in said
    assert run(["log", "inspect", "--json", str(node.data_path)]) == 0
    assert json.loads(capsys.readouterr()[0])[0]["missing"] >= lost
    for _ in range(2):      # a later start finds the same
        node.start()
        found = reports(node)
        assert set(found) == set(everywhere(0, 0)) and len(set(found.values())) == 1
        damaged, missing = found["log"]
        assert damaged == 0 and (missing == lost if which == "middle" else missing >= lost)
        assert state(node)["next_offset"] >= len(BODIES)
        wait_until(lambda: re.search(r"LOG\(t\): .* are gone, with ", node.log))
        assert node.stop() == 0
    node.start()
    before = state(node)["next_offset"]
    node.connect().pub("t", b"new")
    after = state(node)
    assert after["next_offset"] > before >= len(BODIES) and after["missing"] >= lost
    status, answer = node.http("GET", f"/topic/read?topic=t&offset={before}")
    assert status == 200 and json.loads(answer)["body"] == "new"


def test_messages_that_a_channel_has_had(daemon):
    """The last segment and the manifest are gone: the journal shows that more existed."""
    node = filled(daemon, "a")
    lost = len(BODIES) - int(segments(node)[-1].stem)
    segments(node)[-1].unlink()
    (node.data_path / "t.log" / "manifest").unlink()
    node.start()
    assert reports(node) == everywhere(0, lost)
    assert state(node)["next_offset"] == len(BODIES)
    wait_until(lambda: f"LOG(t): {lost} messages from offset {len(BODIES) - lost} on are gone: channels" in node.log)
    node.connect().pub("t", b"new")
    assert reports(node) == everywhere(0, lost)


def test_a_first_segment_whose_header_is_lost(daemon):
    """Its successor knows its content; messages that retention has removed before it are not missing."""
    node = daemon("--topic-storage=log", "--log-retain-bytes=5000", "--max-bytes-per-file=1000")
    producer = node.connect()
    consumer = node.connect().sub("t", "a", 100)
    for body in BODIES * 3:
        producer.pub("t", body)
        consumer.messages(1, finish=True)
    first = wait_until(lambda: state(node)["first_offset"])
    assert node.stop() == 0
    with segments(node)[0].open("r+b") as file:
        file.write(bytes(4096))
    node.start()
    assert reports(node) == {"log": (0, 0), "metrics": (0, 0)}
    assert state(node)["first_offset"] >= first
