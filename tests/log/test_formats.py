"""The log formats: their fields, and that client input cannot forge a line."""

import json
import os
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.log import Log
from nsqc.log.formats import ERROR, FORMS, LEVELS, WORDS, Json, Logfmt, is_journal
from tests.support.patience import WAIT_SECONDS

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PAIR = re.compile(r'([a-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"=\\]+))(?: |\n|$)')
HOSTILE = ('a"b', "x y=z", "back\\slash", "\n{\"level\":\"fatal\"}", "\nlevel=fatal", "\x00\x1b[2J", "\udcff", "\u2028", "é")


def parse_logfmt(line: str) -> dict[str, str]:
    """Keys and values of a line, all of which must be pairs, with unique keys."""
    pairs, at = {}, 0
    while at < len(line):
        match = PAIR.match(line, at)
        assert match and match[1] not in pairs, line
        pairs[match[1]] = match[3] or re.sub(r"\\(.)", r"\1", match[2])
        at = match.end()
    return pairs


READERS = {"json": json.loads, "logfmt": parse_logfmt}


@pytest.fixture
def written(tmp_path):
    """written(use, **more): the lines that use(log) writes."""
    def write(use, **more) -> list[str]:
        path = tmp_path / "log"
        with path.open("wb") as file:
            log = Log(descriptor=file.fileno(), **more)
            use(log)
            log.close()
        return path.read_text(encoding="utf-8").split("\n")[:-1]

    return write


@pytest.mark.parametrize("form", READERS)
def test_lines_of_values(written, form):
    before = datetime.now(UTC)

    def use(log):
        log.debug("d")
        log.info("TOPIC(%s): new channel(%s)", "t", "c#ephemeral")
        log.warn("client(%s) refused: %s %d reached", "127.0.0.1:1", "--max-connections", 5)
        log.error("[%s] - %s", "127.0.0.1:2", 'E_BAD_TOPIC PUB topic name "a b" is not valid')
        log.fatal("%s", "no")

    lines = [READERS[form](line) for line in written(use, level=1, form=form)]
    for line in lines:
        assert TIME.fullmatch(line["time"])
        at = datetime.fromisoformat(line.pop("time"))
        assert before - timedelta(seconds=1) < at < datetime.now(UTC) + timedelta(seconds=1)
        assert line.pop("prefix") == "[nsqd]"
    error = 'E_BAD_TOPIC PUB topic name "a b" is not valid'
    assert lines == [
        {"level": "debug", "message": "d"},
        {"level": "info", "message": "TOPIC(t): new channel(c#ephemeral)", "topic": "t", "channel": "c#ephemeral"},
        {"level": "warn", "message": "client(127.0.0.1:1) refused: --max-connections 5 reached",
         "client": "127.0.0.1:1"},
        {"level": "error", "message": f"[127.0.0.1:2] - {error}", "client": "127.0.0.1:2", "error": error},
        {"level": "fatal", "message": "no"}]


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("prefix,shown", [("", None), ("  ", None), ("node 7: ", "node 7:"), ("a\nb", "a\\nb"), ('"\n', '"')])
def test_the_prefix_is_a_value(written, form, prefix, shown):
    (line,) = written(lambda log: log.info("x"), form=form, prefix=prefix)
    assert READERS[form](line).get("prefix") == shown


@pytest.mark.parametrize("form", READERS)
def test_times_are_utc_whatever_the_time_zone(form):
    code = f"from nsqc.log import Log; log = Log(form={form!r}); log.info('x'); log.close()"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TZ": "Asia/Kathmandu"}, check=True,
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    at = datetime.fromisoformat(READERS[form](done.stderr)["time"])
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", HOSTILE)
def test_one_line_whatever_clients_send(written, form, text):
    def use(log):
        log.info("TOPIC(%s): created", text)
        log.error("[%s] - %s", text, text)
        log.error("DISKQUEUE(%s): write failed - %s", text, text)

    lines = written(use, form=form)
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    if form in READERS:
        first, second, third = map(READERS[form], lines)
        assert [line["level"] for line in (first, second, third)] == ["info", "error", "error"]
        shown = first["topic"]
        assert first.keys() == {"time", "level", "prefix", "message", "topic"}
        assert first["message"] == f"TOPIC({shown}): created"
        assert second["client"] == second["error"] == third["error"] == shown
    else:
        pattern = r"\[nsqd\] [\d/]+ [\d:.]+ (INFO|ERROR): "
        assert all(re.match((r"<[63]>" if form == "journal" else "") + pattern, line) for line in lines)


@pytest.mark.parametrize("form,make", [("json", Json), ("logfmt", Logfmt)])
@given(st.text(st.characters(exclude_categories=["C", "Z"])), st.text(st.characters(exclude_categories=["C"])))
def test_values_are_read_as_they_were(form, make, prefix, value):
    line = make(prefix).line(0, ERROR, value, {"topic": value})
    assert line.count("\n") == 1
    assert READERS[form](line) == {"time": "1970-01-01T00:00:00.000000Z", "level": "error", "message": value,
                                   "topic": value, **({"prefix": prefix} if prefix else {})}


def test_a_journal_line_is_nsqds_with_the_priority_in_front(written):
    def use(log):
        log.debug("a")
        log.info("b")
        log.warn("c")
        log.error("d")
        log.fatal("e")

    lines = written(use, form="journal", level=1)
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>"]
    assert [line.split()[-2:] for line in lines] == [
        [f"{WORDS[level]}:", text] for level, text in zip(LEVELS.values(), "abcde", strict=True)]


# ---------------------------------------------------------------------- started by systemd


def test_stderr_is_the_journal_if_it_is_the_file_that_systemd_names(tmp_path):
    with (tmp_path / "a").open("wb") as one, (tmp_path / "b").open("wb") as other:
        status = os.fstat(one.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert is_journal(one.fileno(), environ)
        assert not is_journal(other.fileno(), environ)
        assert not is_journal(one.fileno(), {})
        assert not is_journal(one.fileno(), {"JOURNAL_STREAM": "x"})
    assert not is_journal(999_999, environ)


@pytest.mark.parametrize("command", ["serve", "lookupd"])
@pytest.mark.parametrize("flags,start", [
    ((), rb"<6>\[nsq(d|lookupd)\] \d{4}/\d\d/\d\d "), (("--log-format=text",), rb"\[nsq(d|lookupd)\] \d{4}/"),
    (("--log-format=json",), rb'{"time":"')])
def test_a_server_that_systemd_has_started(tmp_path, command, flags, start):
    """A socket like the journal's."""
    read, write = socket.socketpair()
    read.settimeout(WAIT_SECONDS)
    status = os.fstat(write.fileno())
    folder = [f"--data-path={tmp_path}"] if command == "serve" else []
    with read, write:
        process = subprocess.Popen(
            [sys.executable, "-m", "nsqc", command, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", *folder,
             *flags], stderr=write, env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        write.close()
        data = b""
        while data.count(b"listening on") < 2:
            data += read.recv(65536)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    lines = data.split(b"\n")
    assert len(lines) > 2 and all(re.match(start, line) for line in lines[:-1])


@pytest.mark.parametrize("command", ["serve", "lookupd"])
def test_the_format_from_a_config_file(tmp_path, command):
    config = tmp_path / "config"
    config.write_text('log_format = "logfmt"\ntcp_address = "127.0.0.1:99999"\n')
    done = subprocess.run([sys.executable, "-m", "nsqc", command, f"--config={config}", f"--data-path={tmp_path}"][
        :6 if command == "serve" else 5], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 1
    assert [parse_logfmt(line)["level"] for line in done.stderr.splitlines()][-1] == "fatal"


def test_an_unknown_format_is_refused():
    done = subprocess.run([sys.executable, "-m", "nsqc", "serve", "--log-format=xml"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 2
    assert "'xml' is not one of auto, text, json, journal, logfmt" in done.stderr


def test_errors_before_the_start_have_the_form_too(tmp_path):
    done = subprocess.run([sys.executable, "-m", "nsqc", "serve", "--log-format=json", "--config=/nowhere"],
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 1
    assert json.loads(done.stderr)["message"].startswith("failed to load config file /nowhere")
