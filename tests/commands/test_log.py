"""`nsqc log`: on folders as docs/ondisk.md describes them, and exported files read back by a daemon in memory mode."""

import json
import os
import shutil

import pytest

from nsqc.commands.app import run
from nsqc.process.lock import lock
from nsqc.store.log import export as export_module
from nsqc.store.log import exportplan
from nsqc.store.log.export import Export
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, SKIP, frame, section, write_journal
from tests.store.log.segments import body_of, due_entry, entry, record, write_segment
from tests.support.daemon import wait_until
from tests.support.log import RecordingLog

DUE = 4_000_000_000_000_000_000


@pytest.fixture
def nsqc(capsys):
    """nsqc(*words) -> exit code, stdout, stderr."""
    def call(*words) -> tuple[int, str, str]:
        code = run(["log", *(str(word) for word in words)])
        return code, *capsys.readouterr()

    return call


FAR = 2**32     # as after a power failure


@pytest.fixture
def data(tmp_path):
    """A data path with one topic: three segments, four channels."""
    path = tmp_path / "data"
    path.mkdir()
    folder = path / "topic.log"
    for first, count in ((0, 40), (40, 20), (FAR, 30)):
        write_segment(folder, first, count)
    (folder / f"{40:020}.due").write_bytes(due_entry(59, DUE))
    write_journal(folder, 1, frame(
        section(1, [(RESET, 0), (NAME, "stuck"), (ADVANCE, 50), (FIN, 0, 3), (FIN, 4, 46), (REQ, 3, 7, DUE)]),
        section(2, [(RESET, 0), (NAME, "new")]),
        section(3, [(RESET, 0), (NAME, "part"), (ADVANCE, 45), (FIN, 0, 45)]),
        section(4, [(RESET, 0), (NAME, "holes"), (ADVANCE, 2), (FIN, 0, 1), (SKIP, FAR + 10, 5)])))
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
    """(body, attempts) of all there is, in order."""
    node.post(f"/channel/unpause?topic=topic&channel={channel}")
    depth = node.channel("topic", channel)["depth"]
    consumer = node.connect().sub("topic", channel, 200)
    messages = consumer.messages(depth, finish=True)
    assert consumer.quiet(0.2)
    consumer.close()
    return [(message.body, message.attempts) for message in messages]


def check_delivery(node, unfinished: dict[str, list[int]] | None = None) -> None:
    """Each channel gets what it has not finished, once."""
    for channel, offsets in (unfinished or UNFINISHED).items():
        got = delivered(node, channel)
        assert sorted(body for body, _ in got) == sorted(map(body_of, offsets)), channel


# ---------------------------------------------------------------------- looking


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
    assert (code, out, err) == (0, f"{data}/topic.log: ok, 90 sound messages\n", "")
    path = data / "topic.log" / f"{40:020}.dat"
    with path.open("r+b") as file:
        file.seek(33)
        file.write(b"~")
    code, out, _ = nsqc("verify", data / "topic.log")
    assert (code, out.splitlines()) == (1, [
        f"{path}: 1 record damaged, from offset 40 on", f"{data}/topic.log: 1 fault, 89 sound messages"])


def test_repair(nsqc, data):
    path = data / "topic.log" / f"{40:020}.idx"
    whole = path.read_bytes()
    path.unlink()
    code, out, _ = nsqc("repair", "--dry-run", data)
    assert code == 0 and out.endswith("1 step, not taken\n") and not path.exists()
    code, out, _ = nsqc("repair", data)
    assert code == 0 and len(path.read_bytes()) == len(whole)
    assert nsqc("verify", data)[0] == 0
    assert nsqc("repair", data)[1] == f"{data}/topic.log: nothing to mend\n"


def test_beside_a_daemon(nsqc, data, tmp_path):
    descriptor = lock(str(data))
    try:
        for words in (["inspect"], ["verify"]):
            code, _, err = nsqc(*words, data)
            assert code == 0 and err.startswith(f"nsqc log {words[0]}: warning: a daemon is running")
        for words in (["repair"], ["repair", "--dry-run"], ["export", "--to", "nsqd"],
                      ["export", "--to", "nsqd", "--out", tmp_path / "out"]):
            code, out, err = nsqc(*words, data)
            assert (code, out) == (1, "") and "failed to lock data-path" in err
    finally:
        os.close(descriptor)
    assert nsqc("inspect", data)[2] == ""


@pytest.mark.parametrize("words", [
    ["inspect"], ["verify", "/nowhere"], ["inspect", "{empty}"], ["export", "{data}"],
    ["export", "--to", "kafka", "{data}"], ["export", "--to", "nsqd", "--out", "s3a://bucket/x", "{data}"], ["repair", "{data}/nsqd.dat"],
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
    lines = text.splitlines()
    assert lines[1] == ("topic:new: 90 messages, 3 segments linked, 0 bytes to be copied; due at once, since nsqd's files have "
                        "no delays: 1 deferred message")
    assert lines[2].startswith("topic:part: 45 messages, 2 segments linked, 0 bytes to be copied")
    assert "2 deferred messages" in lines[0]
    assert os.path.samefile(out / "topic:new.diskqueue.000001.dat", data / "topic.log" / f"{40:020}.dat")
    assert sorted(os.listdir(data / "topic.log")) == before
    assert sorted(name for name in os.listdir(out) if "diskqueue" not in name) == ["nsqd.dat"]
    dats = {path: path.read_bytes() for path in (data / "topic.log").glob("*.dat")}
    node = daemon(data_path=out)
    assert node.channel("topic", "new")["paused"] and not node.channel("topic", "part")["paused"]
    got = delivered(node, "stuck")
    # In order, and what was requeued has its attempts.
    assert got == [(body_of(3), 8), *((body_of(offset), 1) for offset in UNFINISHED["stuck"][1:])]
    assert [body for body, _ in delivered(node, "part")] == [body_of(offset) for offset in UNFINISHED["part"]]
    assert delivered(node, "holes")[0] == (body_of(1), 2)
    assert len(delivered(node, "new")) == 90
    node.connect().pub("topic", b"later")
    assert node.stop() == 0
    assert {path: path.read_bytes() for path in (data / "topic.log").glob("*.dat")} == dats


def test_export_in_place(nsqc, data, daemon):
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    assert not (data / "topic.log").exists()
    assert sorted(os.listdir(data / "topic.log.exported"))[0] == f"{0:020}.dat"
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


def test_a_large_segment_that_is_read_in_part_comes_first(data, daemon, tmp_path, monkeypatch):
    """And is linked: what was delivered and is not finished comes behind it."""
    monkeypatch.setattr(exportplan, "MOST_COPIED", 10)
    monkeypatch.setattr(exportplan, "FILE_BYTES", 200)
    lines: list[str] = []
    out = tmp_path / "out"
    out.mkdir()
    Export(str(data / "topic.log"), str(out), lines.append, RecordingLog()).run()
    assert next(line for line in lines if line.startswith("topic:stuck")).startswith("topic:stuck: 41 messages, 2 segments")
    node = daemon(data_path=out)
    assert delivered(node, "stuck")[-1] == (body_of(3), 8)
    check_delivery(node, {name: offsets for name, offsets in UNFINISHED.items() if name != "stuck"})


def test_without_links_everything_is_copied(data, daemon, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(export_module.os, "link", refuse)
    lines: list[str] = []
    out = tmp_path / "out"
    out.mkdir()
    Export(str(data / "topic.log"), str(out), lines.append, RecordingLog()).run()
    size = sum(len(record(offset)) for offset in EVERYTHING)
    assert lines[1].startswith(f"topic:new: 90 messages, 0 segments linked, {size} bytes to be copied")
    monkeypatch.undo()
    check_delivery(daemon(data_path=out))


def test_a_paused_topic_keeps_what_is_not_for_its_channels_yet(nsqc, data, daemon):
    write_metadata(data, paused=True)
    write_journal(data / "topic.log", 2, frame(section(0, [(RESET, FAR + 5)])))
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    node = daemon(data_path=data)
    assert node.stats("topic")["depth"] == 25
    assert node.channel("topic", "part")["depth"] == len(UNFINISHED["part"]) - 25
    node.post("/topic/unpause?topic=topic")
    wait_until(lambda: node.stats("topic")["depth"] == 0)
    # A queue of a topic cannot say that one of the channels has finished some of its messages.
    check_delivery(node, {**UNFINISHED, "holes": [*range(1, 60), *range(FAR, FAR + 30)]})


def test_a_topic_without_channels(nsqc, tmp_path, daemon):
    data = tmp_path / "data"
    data.mkdir()
    write_segment(data / "topic.log", 0, 20)
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    node = daemon(data_path=data)
    assert node.stats("topic")["depth"] == 20
    node.post("/channel/create?topic=topic&channel=c")
    wait_until(lambda: node.channel("topic", "c")["depth"] == 20, "the topic's messages")
    assert len(delivered(node, "c")) == 20


def test_what_waits_in_the_old_form_comes_first(nsqc, data, daemon):
    """As after a topic has been turned from memory to log."""
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


def test_damaged_records_and_torn_ends_are_left_out(nsqc, data, daemon):
    folder = data / "topic.log"
    with (folder / f"{0:020}.dat").open("r+b") as file:
        file.seek(sum(len(record(offset)) for offset in range(20)) + 2)
        file.write(b"\xff")
    with (folder / f"{FAR:020}.dat").open("ab") as file:
        file.write(record(FAR + 30))
    code, out, _ = nsqc("export", "--to", "nsqd", data)
    assert code == 0 and "damaged and left out: 1 message" in out
    check_delivery(daemon(data_path=data), {
        name: [offset for offset in offsets if offset != 20] for name, offsets in UNFINISHED.items()})


def test_damaged_journals_are_repaired_first(nsqc, data):
    path = data / "topic.log" / "cursors.000001.journal"
    path.write_bytes(b"X" + path.read_bytes()[1:])
    code, _, err = nsqc("export", "--to", "nsqd", data)
    assert code == 1 and "run nsqc log repair first" in err
    assert nsqc("repair", data)[0] == 0
    assert nsqc("export", "--to", "nsqd", data)[0] == 0


def damage_entry(path) -> None:
    with path.open("r+b") as file:
        file.seek(32 + 16 * 5 + 8)
        file.write(b"\xff")


def replace_end(path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(-len(data), os.SEEK_END)
        file.write(data)


@pytest.mark.parametrize(("first", "damage"), [
    (0, damage_entry), (0, lambda path: path.write_bytes(b"")), (0, os.unlink),
    (0, lambda path: os.truncate(path, path.stat().st_size - 32)), (0, lambda path: replace_end(path, bytes(32))),
    (FAR, lambda path: replace_end(path, b"\xff"))],
    ids=["an entry", "empty", "missing", "cut off", "zeros at the end", "the last entry of all"])
def test_damaged_indexes_are_repaired_first(nsqc, data, daemon, first, damage):
    """An export without them would leave out messages that are intact."""
    path = data / "topic.log" / f"{first:020}.idx"
    damage(path)
    code, out, err = nsqc("export", "--to", "nsqd", data)
    assert (code, out) == (1, "") and f"{path}: damaged: run nsqc log repair first" in err
    assert nsqc("repair", data)[0] == 0
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    check_delivery(daemon(data_path=data))


def test_bytes_of_no_message_between_intact_ones(nsqc, data, daemon):
    """As a repair leaves them that has found more records than numbers: they are no part of what is exported."""
    path = data / "topic.log" / f"{40:020}.dat"
    records = [record(offset) for offset in range(40, 60)]
    path.write_bytes(b"".join(records[:7]) + b"?" * 50 + b"".join(records[7:]))
    index = path.with_suffix(".idx")
    position = sum(map(len, records[:7])) + 50
    with index.open("r+b") as file:
        for number in range(7, 20):
            file.seek(32 + 16 * number)
            file.write(entry(40, 40 + number, position, records[number]))
            position += len(records[number])
    assert nsqc("verify", data)[0] == 0
    copy = data.with_name("copy")
    shutil.copytree(data, copy)
    node = daemon("--topic-storage=log", data_path=copy)
    status, body = node.http("GET", "/topic/read?topic=topic&offset=40&max_messages=20")
    assert status == 200 and records[0] in body and b"?" not in body
    check_delivery(node, {"new": [offset for offset in EVERYTHING if offset != 59]})    # that is deferred
    assert nsqc("export", "--to", "nsqd", data)[0] == 0
    check_delivery(daemon(data_path=data))


class Killed(BaseException):
    """Instead of a kill: nothing catches it."""


def killed_after(steps: int, patch, run) -> bool:
    """Runs it until it has changed so many names; whether it was killed."""
    left = iter(range(steps))

    def counted(real):
        def call(*arguments, **named):
            if next(left, None) is None:
                raise Killed
            return real(*arguments, **named)
        return call

    for name in ("rename", "link", "mkdir", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    try:
        run()
    except Killed:
        return True
    return False


def test_an_export_that_is_killed_anywhere_is_finished_by_the_next(data, daemon, tmp_path, monkeypatch):
    """Before each call that changes a name, in turn. Slow: an export is killed at each of its steps, and done again."""
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
