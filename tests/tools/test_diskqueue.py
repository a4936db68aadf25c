"""nsqc diskqueue: its findings in damaged queues, its repairs, and that no intact message is lost."""

import json
import os
from pathlib import Path

import pytest

from nsqc.store.disk.check import Repair, findings, look
from nsqc.store.disk.recovery import encode
from tests.support.daemon import wait_until
from tests.support.logs import record
from tests.tools.calling import call

MOST = 30 + (1 << 20)
BODIES = [b"body %d" % number for number in range(100)]


def nsqc(*words, code=0):
    """The output of a call; stdout, then stderr."""
    done = call("diskqueue", *words)
    assert done.code == code, done
    return done.out, done.err


def make(folder, name="t"):
    """A queue of three files, 40, 40 and 20 messages; ten of the first are read."""
    records = [record(body, 1_700_000_000_000_000_000 + number, number + 1) for number, body in enumerate(BODIES)]
    for number, part in enumerate((records[:40], records[40:80], records[80:])):
        (folder / f"{name}.diskqueue.{number:06}.dat").write_bytes(b"".join(part))
    read_at = sum(map(len, records[:10]))
    (folder / f"{name}.diskqueue.meta.dat").write_bytes(
        encode(90, 0, read_at, 2, (folder / f"{name}.diskqueue.000002.dat").stat().st_size))


@pytest.fixture
def queue(tmp_path):
    """A data path with such a queue."""
    folder = tmp_path / "data"
    folder.mkdir()
    make(folder)
    return folder


def data(folder, number):
    return folder / f"t.diskqueue.{number:06}.dat"


def meta(folder):
    return folder / "t.diskqueue.meta.dat"


def damage(path, at, junk=b"\xff" * 10):
    content = bytearray(path.read_bytes())
    content[at:at + len(junk)] = junk
    path.write_bytes(content)


def delivered(node, topic="t"):
    """The bodies that a daemon delivers of a topic."""
    node.post(f"/topic/create?topic={topic}")
    depth = node.stats(topic)["depth"]
    client = node.connect().sub(topic, "c", 200)
    bodies = [message.body for message in client.messages(depth, finish=True)]
    wait_until(lambda: node.channel(topic, "c")["in_flight_count"] == 0)
    assert node.stats(topic)["depth"] == node.channel(topic, "c")["depth"] == 0
    return bodies


def test_a_sound_queue(queue):
    table, _ = nsqc("inspect", str(queue))
    head, row = table.splitlines()
    assert head.split()[:2] == ["QUEUE", "MESSAGES"]
    assert row.split()[:4] == ["t", "90", str(sum(36 + len(str(n)) - 1 for n in range(10, 100))), "3"]
    value = json.loads(nsqc("inspect", "--json", "--topic", "t", str(queue))[0])
    assert (value["topic"], value["channel"], value["messages"]) == ("t", None, 90)
    assert [file["messages"] for file in value["files"]] == [30, 40, 20]
    assert nsqc("verify", str(queue))[0] == f"{queue}/t: ok, 90 messages waiting\n"
    assert nsqc("repair", str(queue))[0] == f"{queue}/t: nothing to repair\n"
    assert sorted(os.listdir(queue)) == sorted(f"t.diskqueue.{name}.dat" for name in ("000000", "000001", "000002", "meta"))


def break_middle(folder):
    damage(data(folder, 1), 37 * 11)        # start of record 51
    return [body for number, body in enumerate(BODIES) if number >= 10 and number != 51]


def break_read_file(folder):
    damage(data(folder, 0), 500, b"\xff" * 4)       # a size
    return [body for number, body in enumerate(BODIES) if number >= 10 and number != 13]


def break_end(folder):
    content = data(folder, 2).read_bytes()
    data(folder, 2).write_bytes(content + b"\xee" * 100)
    return BODIES[10:]


def lose_positions(folder):
    meta(folder).unlink()
    return BODIES


def spoil_positions(folder):
    meta(folder).write_bytes(b"not a number\n")
    return BODIES


def turn_positions(folder):
    meta(folder).write_bytes(encode(5, 9, 0, 2, 7))
    return BODIES


def lose_file(folder):
    data(folder, 1).unlink()
    return BODIES[10:40] + BODIES[80:]


def put_folder(folder):
    data(folder, 1).unlink()
    data(folder, 1).mkdir()
    return BODIES[10:40] + BODIES[80:]


def break_all(folder):
    damage(data(folder, 1), 0, bytes(40))
    lose_positions(folder)
    break_end(folder)
    return [body for number, body in enumerate(BODIES) if number != 40]


CASES = [break_middle, break_read_file, break_end, lose_positions, spoil_positions, turn_positions, lose_file,
         put_folder, break_all]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_what_is_left_is_delivered(daemon, tmp_path):
    """A daemon delivers every intact message, for any damage."""
    whole = tmp_path / "data"
    whole.mkdir()
    expected = {}
    for case in CASES:
        folder = tmp_path / case.__name__
        folder.mkdir()
        make(folder)
        expected[case.__name__] = case(folder)
        mend(folder)
        for path in folder.iterdir():
            path.rename(whole / path.name.replace("t.", f"{case.__name__}.", 1))
    node = daemon(data_path=whole)
    assert {name: delivered(node, name) for name in expected} == expected


def mend(folder):
    """Verifies, repairs and verifies again; no existing message may be lost."""
    before = contents(folder)
    assert any(finding.is_fault for finding in findings(look(str(folder), "t", MOST)))
    said = []
    assert Repair(str(folder), "t", MOST, said.append, dry_run=True).run() == len(said) > 0
    assert contents(folder) == before
    said.clear()
    assert Repair(str(folder), "t", MOST, said.append).run() == len(said) > 0
    assert not any(finding.is_fault for finding in findings(look(str(folder), "t", MOST)))
    assert Repair(str(folder), "t", MOST, said.append).run() == 0
    # It has its name, another number, or the suffix .bad.
    after = list(contents(folder).values())
    assert [name for name, content in before.items() if content not in after and "meta" not in name] == []


def test_verify_and_repair(queue):
    break_middle(queue)
    out, _ = nsqc("verify", str(queue), code=1)
    assert out.splitlines()[-1] == f"{queue}/t: 1 fault, 89 messages waiting"
    out, _ = nsqc("repair", "--dry-run", str(queue))
    assert out.splitlines()[-1] == f"{queue}/t: 2 steps, not taken"
    out, _ = nsqc("repair", str(queue))
    assert out.splitlines()[-1] == f"{queue}/t: 2 steps"
    value = json.loads(nsqc("verify", "--json", str(queue))[0])
    assert (value["queue"], value["messages"], value["faults"]) == ("t", 89, 0)


def test_half_a_record_is_a_note(queue):
    path = data(queue, 2)
    path.write_bytes(path.read_bytes() + record(b"half of it", 1, 1)[:20])
    out, _ = nsqc("verify", str(queue))
    assert "note: ends with a torn write, 20 bytes" in out
    assert "ok, 90 messages" in out


def test_large_messages_are_not_taken_for_damage(queue):
    path = data(queue, 2)
    path.write_bytes(path.read_bytes() + record(b"x" * 2_000_000, 1_700_000_000_000_000_000, 500))
    assert "larger than --max-msg-size" in nsqc("verify", str(queue), code=1)[0]
    content = path.read_bytes()
    assert "give the daemon's" in nsqc("repair", str(queue), code=1)[1]
    assert path.read_bytes() == content
    assert "91 messages waiting" in nsqc("verify", "--max-msg-size", "4M", str(queue))[0]


def test_a_repair_that_was_interrupted_is_finished(queue, daemon):
    break_middle(queue)
    (queue / "t.diskqueue.000001.dat.123.tmp").write_bytes(b"half")
    lose_positions(queue)
    Repair(str(queue), "t", MOST, print).run()
    (queue / "t.diskqueue.meta.dat").unlink()       # killed before the positions were written
    Repair(str(queue), "t", MOST, print).run()
    assert len(delivered(daemon(data_path=queue))) == 99


def test_a_daemon_is_not_disturbed(daemon, tmp_path):
    node = daemon("--mem-queue-size=0")
    node.connect().pub("t", b"a", b"b")
    folder = str(node.data_path)
    wait_until(lambda: any(name.endswith("000000.dat") for name in os.listdir(folder)))
    out, err = nsqc("inspect", folder)
    assert "warning: a daemon is running" in err
    assert out.splitlines()[1].split()[:2] == ["t", "2"]
    out, err = nsqc("repair", folder, code=1)
    assert out == ""
    assert "stop the daemon first" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("words", "code", "text"), [
    (["inspect"], 2, "PATH is missing"),
    (["inspect", "/nowhere"], 2, "/nowhere does not exist"),
    (["inspect", "--topic", "s", "DATA"], 4, "did you mean 't'"),
    (["inspect", "--channel", "c", "DATA"], 2, "--channel needs --topic"),
    (["mend", "DATA"], 2, "No such command 'mend'"),
    (["repiar", "DATA"], 2, "Did you mean 'repair'"),
])
def test_errors(queue, words, code, text):
    out, err = nsqc(*[str(queue) if word == "DATA" else word for word in words], code=code)
    assert out == ""
    assert len(err.splitlines()) == 1
    if "did you mean 't'" not in text:
        assert text in err


def test_an_empty_folder(tmp_path):
    assert nsqc("inspect", str(tmp_path))[0] == "no disk queues\n"
    assert nsqc("verify", str(tmp_path))[0] == ""
    assert Path(tmp_path).exists()
