"""The jobs' messages while they run and when they end: progress in a pipe and on a terminal, signals, traces. No
Spark."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsqc.spark import mistakes
from nsqc.spark.jobs import running as progress
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.publishing import RECORD, RowReporter, TaskRows
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).parent.parent.parent
JOB = """
import sys, time
from nsqc.spark.jobs import running, running as progress
progress.LINE_SECONDS, progress.REDRAW_SECONDS = 0.1, 0.02
import typer
done = 0
def work():
    global done
    with running.failures() as says:
        says.summary = lambda: "at least %d messages were published" % done
        says.show(progress.counted("published", lambda: done, progress.Rate(), 900))
        says.note("ready")
        while True:
            try:
                while True:         # in here: a signal is also noticed where a loop begins again
                    time.sleep(0.01)
                    done += 1
            except BaseException:
                if sys.argv[1] != "hang":
                    raise
try:
    work()
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


@pytest.fixture
def job():
    """job(word, stderr) -> a process that works for ever, ready for signals; stderr's lines where it is a pipe."""
    running = []

    def start(word: str = "", stderr: int = subprocess.PIPE) -> subprocess.Popen:
        running.append(subprocess.Popen([sys.executable, "-c", JOB, word], cwd=ROOT, stderr=stderr, text=True))
        if stderr == subprocess.PIPE:
            next(line for line in running[-1].stderr if line == "nsqc spark: ready\n")
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.wait()


def test_lines_in_a_pipe_from_the_first_moment_on(job):
    one = job()
    lines = [one.stderr.readline() for _ in range(3)]
    assert all(re.fullmatch(r"nsqc spark: published \d+ of 900 messages, [\d,]+ a second\n", line) for line in lines), lines


def test_one_line_that_is_redrawn_on_a_terminal(job):
    leader, follower = pty.openpty()
    job(stderr=follower)
    os.close(follower)
    seen = b""
    while seen.count(b"\r\x1b[Knsqc spark: published") < 5:
        seen += os.read(leader, 4096)
    os.close(leader)
    assert seen.count(b"\n") == 1 and b"\r\x1b[Knsqc spark: ready\r\n" in seen     # the note has its own line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_says_what_was_done(job, number):
    one = job()
    one.send_signal(number)
    assert one.wait(WAIT_SECONDS) == 128 + number
    last = one.stderr.read().splitlines()[-1]
    assert re.fullmatch(rf"nsqc spark: stopped by {signal.Signals(number).name}; at least \d+ messages were published", last)


def test_the_third_signal_ends_a_job_that_hangs(job):
    one = job("hang")
    one.send_signal(signal.SIGINT)
    next(line for line in one.stderr if "stopping…" in line)
    one.send_signal(signal.SIGINT)
    next(line for line in one.stderr if "a third signal ends the job immediately" in line)
    one.send_signal(signal.SIGINT)
    assert one.wait(WAIT_SECONDS) == 130
    assert one.stderr.read().splitlines()[-1] == "nsqc spark: ended immediately by SIGINT"


@pytest.mark.parametrize("ask", ["--verbose", "NSQC_VERBOSE", ""])
def test_traces_come_before_the_line_where_they_are_asked_for(tmp_path, ask):
    Ledger(tmp_path / "archive", "t")
    (tmp_path / "archive" / "_ledger.json").write_text("{")
    words = [ask] if ask.startswith("--") else []
    done = subprocess.run([sys.executable, "-m", "nsqc", "spark", "compact", tmp_path / "archive", *words], cwd=ROOT,
                          capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env={**os.environ, **({ask: "1"} if ask.isupper() else {})})
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == bool(ask)
    assert "_ledger.json is not readable" in done.stderr.splitlines()[-1]


def test_what_nobody_foresaw_is_one_line_too(tmp_path):
    code = ("from nsqc.spark.jobs import running\n"
            "import typer\n"
            "try:\n"
            "    with running.failures(): {}['x']\n"
            "except typer.Exit as end: print(end.exit_code)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.stdout, done.stderr) == ("1\n", "nsqc spark: KeyError: 'x' (--verbose shows where)\n")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3600, "1:00:00")])
def test_times(seconds, text):
    assert progress.clock(seconds) == text


def test_the_rows_are_the_sum_of_what_the_tasks_reported_last():
    task_rows = TaskRows("127.0.0.1")
    one, other = RowReporter(task_rows.address, 1), RowReporter(task_rows.address, 2)
    for rows in (5, 30):
        one.report(SimpleNamespace(rows=rows))
    other.report(SimpleNamespace(rows=12))
    wait_until(lambda: task_rows.rows == 42)
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for data in (RECORD.pack(b"x" * 16, 3, 10**6), b"", b"x" * 16):
        stranger.sendto(data, ("127.0.0.1", int(task_rows.address.rpartition(":")[2])))
    stranger.close()
    one.report(SimpleNamespace(rows=31))
    wait_until(lambda: task_rows.rows == 43)
    task_rows.close()
    one.report(SimpleNamespace(rows=99))      # no listener: no reason to fail
    one.close()
    other.close()


def test_an_error_of_sparks_that_nobody_catches_ends_with_its_reason(monkeypatch, capsys):
    kind = type("AnalysisException", (Exception,), {"__module__": "pyspark.errors"})
    error = kind("[X] Failed: Traceback (most recent call last):\n  File\nnsqc.spark.options.OptionError: nsq: no\n"
                 "\nDuring handling of the above exception, another exception occurred:\n\nTraceback\n"
                 "UnboundLocalError: reader\n SQLSTATE: 38000")
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    mistakes.print_at_exit()
    mistakes.print_at_exit()
    sys.excepthook(kind, error, None)
    assert capsys.readouterr().err.endswith("SQLSTATE: 38000\n\nreason: nsq: no\n")
    sys.excepthook(KeyError, KeyError("x"), None)
    assert "reason" not in capsys.readouterr().err
