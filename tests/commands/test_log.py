"""`nsqc log`: on folders as docs/ondisk.md describes them, and exported files read back by a daemon in memory mode."""

import json
import os
import shutil

import pytest

from nsqc.process.lifecycle import lock
from nsqc.store.log import export as export_module
from nsqc.store.log.export import Export
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, SKIP, journal_path, write_journal
from tests.store.log.segments import body_of, record, write_log
from tests.support.daemon import logged, wait_until
from tests.support.log import RecordingLog

DUE = 4_000_000_000_000_000_000


@pytest.fixture
def nsqc(nsqc):
    """nsqc(*words): `nsqc log` with these words."""
    return lambda *words: nsqc("log", *words)


FAR = 2**32     # as after a power failure


@pytest.fixture
def data(tmp_path):
    """A data path with one topic: three segments, four channels."""
    path = tmp_path / "data"
    path.mkdir()
    folder = path / "topic.log"
    write_log(folder, [(0, 40), (40, 20), (FAR, 30)], per_frame=4, delays={59: DUE})
    write_journal(folder, [
        (1, [(RESET, 0), (NAME, "stuck"), (ADVANCE, 50), (FIN, 0, 3), (FIN, 4, 46), (REQ, 3, 7, DUE)]),
        (2, [(RESET, 0), (NAME, "new")]),
        (3, [(RESET, 0), (NAME, "part"), (ADVANCE, 45), (FIN, 0, 45)]),
        (4, [(RESET, 0), (NAME, "holes"), (ADVANCE, 2), (FIN, 0, 1), (SKIP, FAR + 10, 5)])])
    write_metadata(path)
    return path


def write_metadata(path, paused: bool = False) -> None:
    channels = [{"name": name, "paused": name == "new"} for name in ("stuck", "new", "part", "holes")]
    (path / "nsqd.dat").write_text(json.dumps(
        {"topics": [{"name": "other", "paused": False, "channels": None},
                    {"name": "topic", "paused": paused, "channels": channels}], "version": "1.3.0"}))


EVERYTHING = [*range(60), *range(FAR, FAR + 30)]
UNFINISHED = {
    "stuck": [3, *range(50, 60), *range(FAR, FAR + 30)],
    "new": EVERYTHING,
    "part": EVERYTHING[45:],
    "holes": [1, *range(2, 60), *range(FAR, FAR + 10), *range(FAR + 15, FAR + 30)],
}


def delivered(node, channel: str) -> list[tuple[bytes, int]]:
    """(body, attempts) of all messages, in order."""
    node.post(f"/channel/unpause?topic=topic&channel={channel}")
    depth = node.channel("topic", channel)["depth"]
    consumer = node.connect().sub("topic", channel, 200)
    messages = consumer.messages(depth, finish=True)
    assert consumer.quiet(0.2)
    consumer.close()
    return [(message.body, message.attempts) for message in messages]


def check_delivery(node, unfinished: dict[str, list[int]] | None = None) -> None:
    """Each channel gets its unfinished messages, once."""
    for channel, offsets in (unfinished or UNFINISHED).items():
        got = delivered(node, channel)
        assert sorted(body for body, _ in got) == sorted(map(body_of, offsets)), channel


# ---------------------------------------------------------------------- inspection


def test_inspect(nsqc, data):
    code, out, err = nsqc("inspect", data)
    assert (code, err) == (0, "")
    assert out.startswith(f"topic: 90 messages, offsets 0 to {FAR + 30}, ")
    code, out, _ = nsqc("inspect", "--json", data / "topic.log")
    (topic,) = json.loads(out)
    assert {channel["name"]: (channel["unfinished"], channel["lag"]) for channel in topic["channels"]} == {
        "stuck": (1, 40), "new": (0, 90), "part": (0, 45), "holes": (1, 83)}


def test_the_folder_that_is_not_being_removed(nsqc, data):
    shutil.copytree(data / "topic.log", data / "topic.log~1")
    shutil.rmtree(data / "topic.log")
    (data / "topic.log").mkdir()
    _, out, _ = nsqc("inspect", "--json", data)
    assert [(topic["topic"], topic["messages"]) for topic in json.loads(out)] == [("topic", 90)]


def test_verify(nsqc, data):
    code, out, err = nsqc("verify", data)
    assert (code, out, err) == (0, f"{data}/topic.log: ok, 90 intact messages\n", "")
    path = data / "topic.log" / f"{40:020}.log"
    damage(path, 4096)
    code, out, _ = nsqc("verify", data / "topic.log")
    assert (code, out.splitlines()) == (1, [
        f"{path}: damaged at byte 4096: messages 40 to 43 are lost", f"{data}/topic.log: 1 fault, 86 intact messages"])
    (data / "topic.log" / f"{FAR:020}.log").unlink()
    code, out, _ = nsqc("verify", data)
    assert code == 1 and out.splitlines()[-1] == f"{data}/topic.log: 2 faults, 56 intact messages"


def damage(path, at: int) -> None:
    """Flips a bit."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("channels", [True, False])
def test_a_newest_segment_that_was_cut_or_removed(nsqc, daemon, channels):
    """After a stop: verify fails, the daemon continues with all intact data, and offsets do not decrease."""
    node = daemon("--topic-storage=log")
    for number in range(3):
        node.post("/pub?topic=t", b"%d" % number)
    if channels:
        node.post("/channel/create?topic=t&channel=c")
    assert node.stop() == 0
    path = node.data_path / "t.log" / f"{0:020}.log"
    assert nsqc("verify", node.data_path)[:2] == (0, f"{path.parent}: ok, 3 intact messages\n")
    os.truncate(path, 4096 + 72)
    code, out, _ = nsqc("verify", node.data_path)
    assert (code, out.splitlines()[0]) == (1, f"{path}: damaged at byte {4096 + 72}: messages 1 to 2 are lost")
    node.start()
    logged(node, "2 damaged messages between offsets 0 and 3 are skipped")
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"] == 3
    node.post("/pub?topic=t", b"new")
    consumer = node.connect().sub("t", "c", 9)
    assert [message.body for message in consumer.messages(2, finish=True)] == [b"0", b"new"]
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"] == 4
    assert node.stop() == 0
    newest = max(path.parent.glob("*.log"))
    assert newest != path
    newest.unlink()
    code, out, _ = nsqc("verify", node.data_path)
    assert code == 1 and f"{path.parent}: the newest segment is gone, with at least " in out
    node.start()
    known = json.loads(node.http("GET", "/topic/log?topic=t")[1])
    assert known["next_offset"] >= 4 and known["missing"] >= 1


def test_a_log_in_the_old_format(nsqc, data):
    (data / "topic.log" / f"{0:020}.idx").touch()
    text = f"{data}/topic.log: it has a log in a format that no release has written: "
    for words in (["inspect"], ["export", "--to", "nsqd"]):
        code, out, err = nsqc(*words, data)
        assert (code, out) == (1, "") and err.startswith(f"nsqc log {words[0]}: {text}")
    code, out, _ = nsqc("verify", data)
    assert code == 1 and out.startswith(text) and out.endswith("1 fault, 0 intact messages\n")


def test_beside_a_daemon(nsqc, data, tmp_path):
    descriptor = lock(str(data))
    try:
        for words in (["inspect"], ["verify"]):
            code, _, err = nsqc(*words, data)
            assert code == 0 and err.startswith(f"nsqc log {words[0]}: warning: a daemon is running")
        for words in (["export", "--to", "nsqd"], ["export", "--to", "nsqd", "--out", tmp_path / "out"]):
            code, out, err = nsqc(*words, data)
            assert (code, out) == (1, "") and "failed to lock data-path" in err
    finally:
        os.close(descriptor)
    assert nsqc("inspect", data)[2] == ""


@pytest.mark.parametrize("words", [
    ["inspect"], ["verify", "/nowhere"], ["inspect", "{empty}"], ["export", "{data}"],
    ["export", "--to", "kafka", "{data}"], ["export", "--to", "nsqd", "--out", "s3a://bucket/x", "{data}"], ["repair", "{data}"],
])
def test_usage(nsqc, data, tmp_path, words):
    (tmp_path / "empty").mkdir()
    code, out, err = nsqc(*(word.format(data=data, empty=tmp_path / "empty") for word in words))
    assert (code, out) == (2, "") and err.startswith("nsqc log") and len(err.splitlines()) == 1


# ---------------------------------------------------------------------- export


def test_export_to_another_folder(nsqc, data, daemon, tmp_path):
    before = sorted(os.listdir(data / "topic.log"))
    out = tmp_path / "out"
    code, text, err = nsqc("export", "--to", "nsqd", "--out", out, data)
    assert (code, err) == (0, "")
    size = sum(len(record(offset)) for offset in EVERYTHING)
    assert text.splitlines()[1] == (f"topic:new: 90 messages, about {size} bytes to be copied; due at once, since nsqd's "
                                    "files have no delays: 1 deferred message")
    assert text.splitlines()[2].startswith(f"topic:part: 45 messages, about {size // 2} bytes to be copied")
    assert "2 deferred messages" in text.splitlines()[0]
    assert sorted(os.listdir(data / "topic.log")) == before
    assert sorted(name for name in os.listdir(out) if "diskqueue" not in name) == ["nsqd.dat"]
    kept = {path: path.read_bytes() for path in (data / "topic.log").iterdir()}
    node = daemon(data_path=out)
    assert node.channel("topic", "new")["paused"] and not node.channel("topic", "part")["paused"]
    got = delivered(node, "stuck")
    # In order; requeued messages keep their attempts.
    assert got == [(body_of(3), 8), *((body_of(offset), 1) for offset in UNFINISHED["stuck"][1:])]
    assert [body for body, _ in delivered(node, "part")] == [body_of(offset) for offset in UNFINISHED["part"]]
    assert delivered(node, "holes")[0] == (body_of(1), 2)
    assert len(delivered(node, "new")) == 90
    node.connect().pub("topic", b"later")
    assert node.stop() == 0
    assert {path: path.read_bytes() for path in (data / "topic.log").iterdir()} == kept


def test_export_in_place(nsqc, data, daemon):
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    assert not (data / "topic.log").exists()
    assert sorted(os.listdir(data / "topic.log.exported"))[0] == f"{0:020}.log"
    assert not (data / "topic.log.exported" / "export").exists()
    assert {topic["name"] for topic in json.loads((data / "nsqd.dat").read_text())["topics"]} == {"other", "topic"}
    check_delivery(daemon(data_path=data))
    assert nsqc("export", "--to", "nsqd", data)[0] == 2


def test_export_twice_to_one_folder_is_refused(nsqc, data, tmp_path):
    out = tmp_path / "out"
    assert nsqc("export", "--to", "nsqd", "--out", out, data)[0] == 0
    names = sorted(os.listdir(out))
    code, _, err = nsqc("export", "--to", "nsqd", "--out", out, data)
    assert code == 1 and "has files of the queue topic:stuck already" in err
    assert sorted(os.listdir(out)) == names


def test_a_queue_of_several_files(data, daemon, tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "FILE_BYTES", 400)
    monkeypatch.setattr(export_module, "READ_BYTES", 100)
    out = tmp_path / "out"
    out.mkdir()
    Export(str(data / "topic.log"), str(out), lambda _: None, RecordingLog()).run()
    assert len(list(out.glob("topic:new.diskqueue.0*.dat"))) > 5
    check_delivery(daemon(data_path=out))


def test_a_paused_topic_keeps_what_is_not_for_its_channels_yet(nsqc, data, daemon):
    write_metadata(data, paused=True)
    write_journal(data / "topic.log", [(0, [(RESET, FAR + 5)])])
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    node = daemon(data_path=data)
    assert node.stats("topic")["depth"] == 25
    assert node.channel("topic", "part")["depth"] == len(UNFINISHED["part"]) - 25
    node.post("/topic/unpause?topic=topic")
    wait_until(lambda: node.stats("topic")["depth"] == 0)
    # A topic's queue cannot record that one channel has finished some of its messages.
    check_delivery(node, {**UNFINISHED, "holes": [*range(1, 60), *range(FAR, FAR + 30)]})


def test_a_topic_without_channels(nsqc, tmp_path, daemon):
    data = tmp_path / "data"
    data.mkdir()
    write_log(data / "topic.log", [(0, 20)])
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    node = daemon(data_path=data)
    assert node.stats("topic")["depth"] == 20
    node.post("/channel/create?topic=topic&channel=c")
    wait_until(lambda: node.channel("topic", "c")["depth"] == 20, "the topic's messages")
    assert len(delivered(node, "c")) == 20


def test_what_waits_in_the_old_form_comes_first(nsqc, data, daemon):
    """As after a topic has switched from memory to a log."""
    node = daemon("--mem-queue-size=0", data_path=data.parent / "old")
    node.connect().sub("topic", "part").close()
    node.connect().pub("topic", b"old 1", b"old 2")
    node.stop()
    for name in os.listdir(node.data_path):
        if name.startswith("topic:part"):
            shutil.copy(node.data_path / name, data / name)
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    other = daemon(data_path=data)
    got = [body for body, _ in delivered(other, "part")]
    assert got == [b"old 1", b"old 2", *map(body_of, UNFINISHED["part"])]


def test_damaged_messages_and_torn_ends_are_left_out(nsqc, data, daemon):
    folder = data / "topic.log"
    damage(folder / f"{0:020}.log", 4096 + 70)
    with (folder / f"{FAR:020}.log").open("ab") as file:
        file.write(b"half a frame")
    code, out, _ = nsqc("export", "--to", "nsqd", data)
    assert code == 0 and "topic:new: 86 messages" in out and "damaged and left out: 4 messages" in out
    check_delivery(daemon(data_path=data), {
        name: [offset for offset in offsets if offset >= 4] for name, offsets in UNFINISHED.items()})


def test_with_a_damaged_journal_messages_come_again(nsqc, data, daemon):
    """No message is omitted, even for a channel whose name is lost."""
    path = journal_path(data / "topic.log")
    damage(path, path.read_bytes().index(b"stuck"))
    code, out, _ = nsqc("export", "--to", "nsqd", data)
    assert code == 0 and out.startswith("topic: its journal is damaged: messages that were finished may come again\n")
    check_delivery(daemon(data_path=data), dict.fromkeys(UNFINISHED, EVERYTHING))


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def killed_after(steps: int, patch, run) -> bool:
    """Runs it until it has changed this many names; returns whether it was killed."""
    left = iter(range(steps))

    def counted(real):
        def call(*arguments, **named):
            if next(left, None) is None:
                raise Killed
            return real(*arguments, **named)
        return call

    for name in ("rename", "mkdir", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    try:
        run()
    except Killed:
        return True
    return False


def test_an_export_that_is_killed_anywhere_is_finished_by_the_next(data, daemon, tmp_path, monkeypatch):
    """Before each call that changes a name, one after the other. Slow: an export is killed at each of its steps, and
    repeated."""
    steps, killed = 0, True
    while killed:
        copied = tmp_path / f"copy{steps}"
        shutil.copytree(data, copied)
        run_export = Export(str(copied / "topic.log"), str(copied), lambda _: None, RecordingLog()).run
        with monkeypatch.context() as patch:
            killed = killed_after(steps, patch, run_export)
        if (copied / "topic.log").exists():
            run_export()
        positions = {path.name: path.read_text() for path in copied.glob("*.meta.dat")}
        expected = {f"topic:{name}.diskqueue.meta.dat": len(offsets) for name, offsets in UNFINISHED.items()}
        assert {name: int(text.split()[0]) for name, text in positions.items()} == expected
        assert not (copied / "topic.log").exists()
        if steps % 12 == 0:
            node = daemon(data_path=copied)
            check_delivery(node)
            node.stop()
        steps += 1
    assert steps > 20
