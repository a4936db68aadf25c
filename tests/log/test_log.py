"""The log: format, levels, and readers that do not read."""

import json
import os
import re
import select
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqc.log import ERROR, MAX_WAITING, Log
from nsqc.log.formats import MAX_LINE

FORM = re.compile(r"\[x\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (DEBUG|INFO|WARNING|ERROR|FATAL): (.*)")


@pytest.fixture
def pipe():
    """Read and write end of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def lines_of(path) -> list[tuple[str, str]]:
    """Level and text of each line of a log file; checks their format."""
    matches = [FORM.fullmatch(line) for line in path.read_text().splitlines()]
    assert None not in matches
    return [match.groups() for match in matches]


@pytest.fixture
def written(tmp_path):
    """written(use, **more): level and text of the lines that use(log) writes."""
    def write(use, **more):
        path = tmp_path / "log"
        with path.open("wb") as file:
            log = Log("[x] ", descriptor=file.fileno(), **more)
            use(log)
            log.close()
            return lines_of(path)

    return write


def test_every_level_by_name(written):
    def use(log):
        log.debug("a %d", 1)
        log.info("b %s %s", "x", 2)
        log.warn("100%")
        log.error("d")
        log.fatal("e")

    assert written(use, level=1) == [("DEBUG", "a 1"), ("INFO", "b x 2"), ("WARNING", "100%"), ("ERROR", "d"),
                                     ("FATAL", "e")]


def test_lower_levels_are_left_out_and_the_level_may_change(written):
    def use(log):
        log.info("no")
        log.warn("no")
        log.error("yes")
        log.level = 2
        log.debug("no")
        log.info("yes")

    assert written(use, level=ERROR) == [("ERROR", "yes"), ("INFO", "yes")]


def test_a_text_is_one_line_whatever_clients_put_into_it(written):
    def use(log):
        log.info("name %s", "a\n[x] 2026/01/31 12:00:00.000000 FATAL: made up\r\x1b[2J\tµ \udcff")

    assert written(use) == [
        ("INFO", "name a\\n[x] 2026/01/31 12:00:00.000000 FATAL: made up\\r\\x1b[2J\\tµ \\udcff")]


def test_a_huge_text_is_cut(written):
    (_, text), = written(lambda log: log.info("y" * 5_000_000))
    assert text == "y" * MAX_LINE + "... (5000000 characters)"


def test_lines_of_many_threads_stay_whole_and_in_order(written):
    def use(log):
        def talk(name):
            for number in range(500):
                log.info("%s %d", name, number)

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    lines = written(use)
    assert len(lines) == 2000
    for name in "abcd":
        assert [text for _, text in lines if text[0] == name] == [f"{name} {number}" for number in range(500)]


DROPPED = re.compile(r"WARNING: LOG: (\d+) lines dropped, stderr was not read$")


def read_until_all_are_accounted_for(end: int, sent: int) -> tuple[list[str], int]:
    """Reads a pipe until the lines received and those reported as dropped add up to all sent; returns both."""
    data, lines, dropped = b"", [], 0
    while len(lines) + dropped < sent:
        assert select.select([end], [], [], 60)[0], f"{len(lines)} lines and {dropped} reported as dropped, of {sent}"
        *whole, data = (data + os.read(end, 1 << 20)).split(b"\n")
        for line in map(bytes.decode, whole):
            if report := DROPPED.search(line):
                dropped += int(report[1])
            else:
                lines.append(line)
    assert data == b""
    return lines, dropped


def test_an_unread_pipe_drops_lines_counts_them_and_never_blocks(pipe):
    log = Log("[x] ", descriptor=pipe[1])
    sent = 3 * MAX_WAITING // 1000
    for number in range(sent):
        log.info("%d %s", number, "y" * 950)
    log.close()  # returns although nothing has been read
    lines, dropped = read_until_all_are_accounted_for(pipe[0], sent)
    assert 0 < dropped < sent
    numbers = [int(line.split()[4]) for line in lines]
    assert numbers == sorted(set(numbers))
    log.info("again")
    assert os.read(pipe[0], 1000).endswith(b" INFO: again\n")


def test_a_line_waits_until_the_system_has_a_thread(pipe, monkeypatch):
    log = Log("[x] ", descriptor=pipe[1])

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        log.info("first")
        log.error("second")
    log.info("third")
    log.close()
    assert [line.split()[-1] for line in os.read(pipe[0], 1000).splitlines()] == [b"first", b"second", b"third"]


def test_a_process_that_cannot_start_a_thread_says_why_it_ends(pipe, monkeypatch):
    reader, writer = pipe
    log = Log(descriptor=writer)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    log.error("the daemon fails")
    for number in range(5_000):         # more than a pipe holds: it must not wait
        log.info("line %d", number)
    log.close()
    assert b"ERROR: the daemon fails\n" in os.read(reader, 4096)



def test_what_is_dropped_is_counted_in_every_form(pipe):
    log = Log(descriptor=pipe[1], form="json")
    sent = 3 * MAX_WAITING // 1000
    for number in range(sent):
        log.info("%d %s", number, "y" * 900)
    data, lines, dropped = b"", 0, 0
    while lines + dropped < sent:
        assert select.select([pipe[0]], [], [], 60)[0]
        *whole, data = (data + os.read(pipe[0], 1 << 20)).split(b"\n")
        for line in map(json.loads, whole):
            if report := re.fullmatch(r"LOG: (\d+) lines dropped, stderr was not read", line["message"]):
                dropped += int(report[1])
            else:
                lines += 1
    assert 0 < dropped < sent


def test_a_non_blocking_descriptor_loses_nothing(pipe):
    os.set_blocking(pipe[1], False)
    log = Log("[x] ", descriptor=pipe[1])
    for number in range(1000):
        log.info("%d %s", number, "y" * 500)
    data = b""
    while data.count(b"\n") < 1000:
        data += os.read(pipe[0], 65536)
    assert [int(line.split()[4]) for line in data.decode().splitlines()] == list(range(1000))


def test_a_reader_that_went_away_is_no_fault():
    read, write = os.pipe()
    os.close(read)
    log = Log("[x] ", descriptor=write)
    log.info("nobody is there")
    log.close()
    log.info("still nobody")
    log.close()
    os.close(write)


def test_closing_waits_for_what_is_being_written():
    read, write = os.pipe()
    log = Log("[x] ", descriptor=write)
    for _ in range(200):
        log.info("y" * 1000)
    with ThreadPoolExecutor(1) as pool, open(read, "rb") as end:
        whole = pool.submit(end.read)
        log.close()
        os.close(write)  # lines not written by now never are
        assert whole.result().count(b"\n") == 200
