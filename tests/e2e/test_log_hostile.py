"""Files of a log that anyone may have written: with valid checksums, and impossible contents."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from nsqc.store.log.reading import LogBlock
from tests.hostile.mutation import put_frame, seal_frame
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, SKIP, write_journal
from tests.store.log.segments import LOG_ID, body_of, sealed, write_log
from tests.support.counting import consume
from tests.support.crc32c import crc32c
from tests.support.daemon import logged

COUNT = 40
LOG = "--topic-storage=log"
ORIGINS = 4


def made(tmp_path, number: int | str = "") -> Path:
    """The folder of a log of a channel that has had no message yet."""
    folder = tmp_path / "data" / f"t{number}.log"
    folder.mkdir(parents=True)
    write_journal(folder, [(1, [(NAME, "c"), (RESET, 0)])])
    return folder


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path)


def changed(data: bytearray, salt: int, position: int, at: int, form: str, *values: int) -> None:
    """Changes fields of a frame's head, and seals it again."""
    struct.pack_into(form, data, position + at, *values)
    head = bytes(data[position + 8:position + 64])
    struct.pack_into(">I", data, position + 4, crc32c(struct.pack(">Qq", salt, position) + head))


@pytest.mark.parametrize(("at", "form", "values"), [
    (16, ">HHIII", (ORIGINS, 0, 1, 0, 2**32 - 1)), (16, ">HHIII", (ORIGINS, 0, 1, 0, 2**31)), (16, ">HHIII", (2, 0, 1, 2**28, 0)),
    (16, ">HHIII", (6, 0, 1, 1, 2**32 - 16)), (20, ">I", (2**32 - 1,)), (8, ">I", (2**32 - 1,)), (32, ">q", (2**63 - 1,)),
    (32, ">q", (2**50,)), (40, ">q", (-1,))])
def test_a_frame_whose_fields_contradict_each_other(daemon, folder, at, form, values):
    """It is damaged, and costs its own messages alone: at a start, over HTTP, and for readers of a node's frames."""
    written, = write_log(folder, [(0, COUNT)], clean=False, synced=True)
    place, data = written.frames[7], bytearray(written.path.read_bytes())
    changed(data, written.salt, place.position, at, form, *values)
    written.path.write_bytes(data)
    frame = bytes(data[place.position:written.frames[8].position])
    with pytest.raises(ValueError):
        LogBlock(frame, len(frame), written.salt, place.position, 7, 8)
    node = daemon(LOG, data_path=folder.parent)
    bodies = {body_of(offset) for offset in range(COUNT) if offset != 7}
    status, read = node.http("GET", "/topic/read?topic=t&max_messages=100")
    assert status == 200 and read.count(b"\n") < COUNT
    assert consume(node, "t", "c", bodies).keys() == bodies
    assert node.stop() == 0


@pytest.mark.parametrize("op", [(ADVANCE, 2**40), (FIN, 2**40, 1), (REQ, 2**40, 1, 0), (ADVANCE, 2**62), (FIN, 2**61, 2**60),
                                (ADVANCE, 2**63 - 1)])
def test_a_channel_at_an_offset_that_the_log_does_not_have(daemon, folder, op):
    """The start takes no longer than usual; unfinished messages are delivered, later ones too."""
    write_log(folder, [(0, COUNT)])
    write_journal(folder, [(1, [op])])
    node = daemon(LOG, data_path=folder.parent)
    node.post("/pub?topic=t", b"new")
    bodies = {*map(body_of, range(COUNT)), b"new"}
    assert consume(node, "t", "c", bodies).keys() == bodies
    logged(node, "LOG(t): ")
    assert node.stop() == 0


def test_messages_that_do_not_exist_are_not_finished(daemon, folder):
    write_log(folder, [(0, COUNT)])
    write_journal(folder, [(1, [(SKIP, 5, 2**61)])])
    node = daemon(LOG, data_path=folder.parent)
    node.post("/pub?topic=t", b"new")
    bodies = {*map(body_of, range(5)), b"new"}
    assert consume(node, "t", "c", bodies).keys() == bodies


def test_headers_with_impossible_numbers(daemon, tmp_path):
    """Each topic has one. The start does not fail, and new messages survive the next one."""
    cases = [(field, number) for field in range(1, 12) for number in (2**62, 2**63 - 1, -1, 2**40)]     # the id of the log is any number
    for case, (field, number) in enumerate(cases):
        written = write_log(made(tmp_path, case), [(0, 20), (20, 20)])[1]
        data = bytearray(written.path.read_bytes())
        for copy in 0, 2048:
            struct.pack_into(">q", data, copy + 16 + 8 * field, number)
            data[copy:copy + 128] = sealed(bytes(data[copy:copy + 124]))
        written.path.write_bytes(data)
    node = daemon(LOG, data_path=tmp_path / "data")
    for case in range(len(cases)):
        node.post(f"/pub?topic=t{case}", b"new")
    node.restart()
    bodies = {*map(body_of, range(20)), b"new"}
    for case, named in enumerate(cases):
        assert consume(node, f"t{case}", "c", bodies).keys() >= bodies, named


def test_manifests_with_impossible_numbers(daemon, tmp_path):
    cases = [(field, number) for field in range(1, 11) for number in (2**62, 2**63 - 1, -1)]
    for case, (field, number) in enumerate(cases):
        folder = made(tmp_path, case)
        write_log(folder, [(0, 20), (20, 20)])
        data = bytearray((folder / "manifest").read_bytes())
        struct.pack_into(">q", data, 16 + 8 * field, number)
        (folder / "manifest").write_bytes(sealed(bytes(data[:124])))
        assert struct.unpack_from(">Q", data, 16) == (LOG_ID,)
    node = daemon(LOG, data_path=tmp_path / "data")
    for case, named in enumerate(cases):
        assert consume(node, f"t{case}", "c", set(map(body_of, range(20)))).keys() >= set(map(body_of, range(20))), named
    assert node.stop() == 0


@pytest.mark.parametrize("origin", [b"no JSON", b"{}", b"{\"topic\":5,\"channel\":\"c\"}", b"{\n}", b"{\"\xff\":1}"])
def test_an_origin_that_no_daemon_has_written(daemon, folder, origin):
    """The letter is shown without it, wherever it cannot be part of an answer."""
    written, = write_log(folder, [(0, 3)], synced=True)
    data, place = bytearray(written.path.read_bytes()), written.frames[2]
    put_frame(data, place.position, struct.pack(">I", 6) + b"letter" + struct.pack(">I", len(origin)) + origin)
    struct.pack_into(">HHIII", data, place.position + 16, ORIGINS, 0, 1, 0, 4 + len(origin))
    seal_frame(data, place.position, written.salt)
    written.path.write_bytes(data)
    node = daemon(LOG, data_path=folder.parent)
    for call in "/dead/list?topic=t", "/dead/show?topic=t&limit=10", "/topic/peek?topic=t", "/topic/read?topic=t&max_messages=10":
        status, answer = node.http("GET", call)
        assert status == 200, (call, answer)
        for line in answer.splitlines():
            json.loads(line)
    assert b"letter" in node.http("GET", "/topic/read?topic=t&max_messages=10")[1]
    assert "panic" not in node.log
