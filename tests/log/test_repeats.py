"""Repeated warnings and errors: the first are written, the others counted, and no count is lost."""

import os
import re
import threading

import pytest

from nsqc.log import Log, formats
from nsqc.log.formats import EVERY_S, MOST_KINDS, MOST_LINES, Repeats
from tests.support.daemon import wait_until

COUNT = re.compile(r"([\d,]+) more like this in the last (?:minute|\d+ s): (.*)")


@pytest.fixture
def logged(tmp_path):
    """log, lines(): a log, and the texts that it has written so far."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        log = Log("", descriptor=file.fileno())
        yield log, lambda: [line.split(": ", 1)[1] for line in path.read_text().splitlines()]
        log.close()


def counted(lines: list[str]) -> int:
    """The number of lines that these reports represent."""
    return sum(int(match[1].replace(",", "")) for match in map(COUNT.fullmatch, lines) if match)


def test_a_line_that_repeats_is_written_once(logged):
    log, lines = logged
    for _ in range(1235):
        log.error("LOOKUPD(%s): %s", "a:4160", "connection refused")
    log.info("between")
    log.close()
    assert lines() == ["LOOKUPD(a:4160): connection refused", "between",
                       "1,234 more like this in the last 1 s: LOOKUPD(a:4160): connection refused"]


def test_of_lines_that_differ_the_first_are_written(logged):
    log, lines = logged
    for number in range(100):
        log.error("[%s] - %s", f"127.0.0.1:{number}", "E_INVALID")
    log.close()
    *shown, report = lines()
    assert shown == [f"[127.0.0.1:{number}] - E_INVALID" for number in range(MOST_LINES)]
    assert COUNT.fullmatch(report).groups() == ("90", shown[-1])


def test_each_topic_and_each_peer_is_a_kind_of_its_own(logged):
    log, lines = logged
    for _ in range(3):
        for name in "abcdefghijklmnop":
            log.error("DISKQUEUE(%s): write failed - %s", name, "No space left on device")
            log.warn("LOOKUPD(%s): %s", name, "timed out")
    log.close()
    assert len(lines()) == 16 * 2 * 2 and counted(lines()) == 16 * 2 * 2


def test_what_is_not_an_error_is_not_counted(logged):
    log, lines = logged
    for _ in range(100):
        log.info("TOPIC(%s): created", "t")
        log.fatal("gone")
    log.close()
    assert len(lines()) == 200


def test_the_count_comes_by_itself_and_then_lines_are_written_again(logged, monkeypatch):
    log, lines = logged
    monkeypatch.setattr(formats, "EVERY_S", 0.3)
    for _ in range(5):
        log.error("again")
    wait_until(lambda: lines() == ["again", "4 more like this in the last minute: again"])
    log.error("again")
    log.close()
    assert lines()[2:] == ["again"]


def test_nothing_is_lost_among_threads(logged):
    log, lines = logged

    def talk(name):
        for number in range(2000):
            log.error("[%s] - %s", f"{name}:{number}", "E")

    threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len(lines()) == MOST_LINES + 1 and counted(lines()) + MOST_LINES == 8000


def test_kinds_are_bounded_and_counted_all_the_same(logged):
    log, lines = logged
    many = 5 * MOST_KINDS
    for _ in range(2):
        for number in range(many):
            log.error("failed to create channels of topic %s - %s", f"t{number}", "x")
    log.error("something else")
    log.close()
    written = lines()
    assert "something else" in written
    assert len(written) < 2 * MOST_KINDS + 2 * MOST_LINES
    assert counted(written) + sum(not COUNT.fullmatch(line) for line in written) == 2 * many + 1


def test_long_examples_are_cut(logged):
    log, lines = logged
    for _ in range(2):
        log.error("%s", "x" * 10_000)
    log.close()
    assert len(lines()[0]) == 10_000 and len(lines()[1]) < 300


def test_a_level_that_is_left_out_is_not_counted(logged):
    log, lines = logged
    for _ in range(3):
        log.warn("w")
    log.level = 4
    for _ in range(3):
        log.warn("w")
    log.close()
    assert lines() == ["w"]


def test_times_of_reports():
    kinds = Repeats()
    assert kinds.due() is None
    assert kinds.admit("a", "", 4, "text", {"topic": "t", "client": "c"}, 100.0)
    assert kinds.admit("b", "", 4, "other", {}, 130.0)
    assert not kinds.admit("a", "", 4, "text", {}, 131.0)
    assert kinds.due() == 100.0 + EVERY_S
    assert list(kinds.reports(100.0 + EVERY_S - 1)) == []
    [report] = kinds.reports(100.0 + EVERY_S)
    assert report == (4, 1, EVERY_S, "text", {"topic": "t"})
    assert kinds.due() == 130.0 + EVERY_S
    assert list(kinds.reports(1000.0)) == []    # no line of b was suppressed
    assert kinds.due() is None


def test_a_count_is_a_value(tmp_path):
    read, write = os.pipe()
    log = Log(descriptor=write, form="logfmt")
    for _ in range(3):
        log.error("[%s] - TOPIC(%s)", "1.2.3.4:5", "t")
    log.close()
    os.close(write)
    with open(read) as end:
        last = end.read().splitlines()[-1]
    assert last.endswith(" topic=t repeats=2") and "client=" not in last


# ---------------------------------------------------------------------- a daemon


def test_floods_of_rude_clients(daemon):
    node = daemon()
    for _ in range(300):
        rude = node.connect(magic=b"GET /")
        assert b"E_BAD_PROTOCOL" in rude.frame()[1]     # so it has been read
        rude.close()
    client = node.connect()
    client.send(b"SUB t c\n" + b"".join(b"FIN %016d\n" % number for number in range(50_000)))
    assert node.stop() == 0
    lines = node.log.splitlines()
    errors = [line.split(": ", 1)[1] for line in lines if " ERROR: " in line]
    assert len(errors) < 30
    assert counted([line for line in errors if "bad protocol magic" in line]) == 300 - MOST_LINES
