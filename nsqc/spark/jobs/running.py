"""Runs a job: its Spark session, signals that stop it, and its one-line error."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import typer

from nsqc.log.formats import visible, visible_lines
from nsqc.spark.mistakes import in_flags, is_sparks, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ====================================================================== progress
# The output of a running job: on a terminal one redrawn line, in a pipe a line every few seconds.
#
# Progress and notes go to stderr, results to stdout.

REDRAW_SECONDS = 0.25
LINE_SECONDS = 5.0
RATE_SECONDS = 5.0      # over which a rate is averaged
PREFIX = "nsqc spark: "


class Progress:
    """Shows the job's activity, from show() to end(). Thread-safe."""

    def __init__(self) -> None:
        self.summary: Callable[[], str] = lambda: "nothing was done"    # so far, for a job that is stopped or fails
        self.count: Callable[[], int] = lambda: 0       # messages published or archived so far
        self._doing: Callable[[], str] = lambda: ""
        self._since = self._shown = 0.0
        self._drawn = self._is_last = False
        self._mutex = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, doing: str | Callable[[], str]) -> None:
        """Shows this text from now on, or the call's result, which may take a few milliseconds."""
        with self._mutex:
            if self._is_last:
                return
            self._doing = doing if callable(doing) else lambda: doing
            self._since = time.monotonic()
            self._draw()
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def stopping(self) -> None:
        """After a signal: shows only this from now on."""
        with self._mutex:
            self.show("stopping…")
            self._is_last = True

    def end(self) -> None:
        """Shows nothing from now on. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._clear()

    def result(self, text: str) -> None:
        """Prints a line of results."""
        with self._mutex:
            self._clear()
            print(visible_lines(text), flush=True)

    def note(self, text: str) -> None:
        """Prints a line for the user: a warning, or a check that was not possible."""
        with self._mutex:
            self._clear()
            print(f"{PREFIX}{visible(text)}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------ the line

    def _run(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            with self._mutex:
                if is_terminal() or time.monotonic() - self._shown >= LINE_SECONDS:
                    self._draw()

    def _draw(self) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._since
        text = f"{self._doing()}, {clock(elapsed)}" if elapsed >= 1 else self._doing()
        # A closed stderr must not end the job.
        with suppress(OSError, ValueError):
            if is_terminal():
                width = terminal_width()
                sys.stderr.write(f"\r\x1b[K{PREFIX}{text}"[:width + 3])
                self._drawn = True
            else:
                sys.stderr.write(f"{PREFIX}{text}\n")
            sys.stderr.flush()

    def _clear(self) -> None:
        with self._mutex, suppress(OSError, ValueError):
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._drawn = False


class Rate:
    """The recent growth rate of a count."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float:
        """Growth per second over the last seconds; 0 if unknown."""
        now = time.monotonic()
        self._samples.append((now, count))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        start, first = self._samples[0]
        return (count - first) / (now - start) if now - start > 0.1 else 0.0


def counted(verb: str, count: Callable[[], int], rate: Rate, total: int | None = None) -> Callable[[], str]:
    """For Progress.show(): published 12,000 of 100,000 messages, 6,100 a second."""
    def text() -> str:
        number = count()
        of = f" of {total:,}" if total is not None else ""
        return f"{verb} {number:,}{of} messages, {rate.of(number):,.0f} a second"
    return text


def clock(seconds: float) -> str:
    """0:07, 1:02:03."""
    whole = int(seconds)
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def is_terminal() -> bool:
    """Whether a line can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns of the terminal: a wrapped line cannot be redrawn."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


# ====================================================================== running

FAILED = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT)
CANCEL_SECONDS = 0.3
JAVA_ERRORS = ("Error", "Exception", "Invalid", "Unrecognized", "OpenJDK 64-Bit Server VM warning: INFO: os::commit")
LAST_LINES = 3
_verbose = False


class JobError(RuntimeError):
    """A job failed; the text is one line for its user."""


class Stopped(BaseException):
    """SIGTERM or SIGINT was received. Not an Exception, so that no handler mistakes it for a failed call."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def failures() -> Iterator[Progress]:
    """Ends the job with one line for an exception, and its exit code: 128 plus the signal's number if a signal stopped
    it, otherwise 1. With --verbose, stack traces precede that line."""
    progress = Progress()
    try:
        with signals(Stop(progress)):
            try:
                yield progress
            finally:
                progress.end()
    except (typer.Exit, typer.TyperException):
        raise
    except Stopped as stop:
        show_trace()
        fail(f"stopped by {stop}; {progress.summary()}", 128 + stop.number)
    except (RuntimeError, ValueError, OSError) as error:
        show_trace()
        fail((reason(error) if is_sparks(error) else str(error)) + done_before(progress))
    except Exception as error:
        show_trace()
        known = is_sparks(error) or type(error).__module__.startswith("pyarrow")
        fail((reason(error) if known else f"{type(error).__name__}: {error} (--verbose shows where)")
             + done_before(progress))


def done_before(progress: Progress) -> str:
    """The progress of a failed job."""
    return f"; {progress.summary()}" if progress.count() else ""


def fail(text: str, code: int = FAILED) -> NoReturn:
    """Prints the line; raises typer's Exit."""
    print(f"{PREFIX}{visible(' '.join(in_flags(text).split()))}", file=sys.stderr)
    raise typer.Exit(code)


def show_trace() -> None:
    """Prints the stack trace, with --verbose."""
    if verbose():
        traceback.print_exc()


def verbose() -> bool:
    """Whether to show stack traces and Java's log: --verbose, or NSQC_VERBOSE in the environment."""
    return _verbose or os.environ.get("NSQC_VERBOSE", "").lower() not in ("", "0", "false", "no")


def be_verbose(asked: bool) -> bool:
    """The typer callback of --verbose."""
    global _verbose
    _verbose = asked
    return asked


@contextmanager
def session(name: str, progress: Progress, settings: dict[str, str] | None = None) -> Iterator[SparkSession]:
    """A Spark session with the formats, stopped afterwards unless it existed before. In the block, SIGTERM and SIGINT
    cancel Spark's jobs, and then raise Stopped. settings: of spark.sql, for the block. Raises NoSpark, NoJava, JobError
    if Java does not start."""
    spark, is_ours = start(name, progress)
    canceller = Canceller(spark, progress)
    try:
        with configured(spark, settings or {}), signals(canceller.begin):
            yield spark
    except Exception as error:
        if canceller.number:
            raise Stopped(canceller.number) from error
        raise
    finally:
        with signals(lambda number: None):
            canceller.end()
            if is_ours:
                spark.stop()


class Canceller:
    """Cancels Spark's jobs after a signal, in a thread: the main thread's connection to Java is busy with the call to
    cancel, and an exception raised during that call would make it unusable."""

    def __init__(self, spark: SparkSession, progress: Progress):
        self.number = 0         # the signal
        self._spark = spark
        self._signals_seen = SignalCount(progress)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cancel", daemon=True)

    def begin(self, number: int) -> None:
        """The signal handler."""
        self._signals_seen.count(number)
        if not self.number:
            self.number = number
            self._thread.start()

    def _run(self) -> None:
        """Cancels repeatedly: the next job may be about to start."""
        while not self._ended.is_set():
            with suppress(Exception):   # Java may have ended
                self._spark.sparkContext.cancelAllJobs()
            self._ended.wait(CANCEL_SECONDS)

    def end(self) -> None:
        """Stops cancelling."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


class SignalCount:
    """Ends the process at the third signal, even if everything hangs."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._signals = 0

    def count(self, number: int) -> None:
        """Counts a signal."""
        self._signals += 1
        if self._signals == 1:
            self._progress.stopping()
        elif self._signals == 2:
            self._progress.note("already stopping; a third signal ends the job immediately")
        else:
            os.write(2, f"\n{PREFIX}ended immediately by {signal.Signals(number).name}\n".encode())
            os._exit(128 + number)


class Stop:
    """The signal handler outside of Spark: raises Stopped once; further signals do not disturb the cleanup."""

    def __init__(self, progress: Progress):
        self._signals_seen = SignalCount(progress)
        self._is_raised = False

    def __call__(self, number: int) -> None:
        self._signals_seen.count(number)
        if not self._is_raised:
            self._is_raised = True
            raise Stopped(number)


def start(name: str, progress: Progress) -> tuple[SparkSession, bool]:
    """The running session or a new one, and whether it is new. Raises NoSpark, NoJava, JobError."""
    from nsqc.spark import sessions

    sessions.need_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        return sessions.session(name), False
    progress.show("starting Spark…")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit decides where this runs; a local master would override it.
        SparkSession.builder.appName(name).getOrCreate().sparkContext.setLogLevel(log_level())
        return sessions.session(name), True
    os.environ["NSQC_SPARK_LOG"] = PREFIX       # workers use it to mark lines for the job's user
    java_output = JavaOutput(progress)
    try:
        # A new process session: Ctrl-C reaches only this process, which then cancels tasks cleanly.
        return sessions.session(name, log_level=log_level(), java={
            "stderr": java_output.end, "start_new_session": True}), True
    except Exception as error:
        if not java_output.errors:
            raise
        raise JobError(f"Java did not start: {'; '.join(java_output.errors)}") from error
    finally:
        java_output.started()


def log_level() -> str:
    """Spark's log level: the job itself reports errors, in one line."""
    return "WARN" if verbose() else "OFF"


class JavaOutput:
    """The stderr of Java and its workers: with --verbose everything passes, otherwise only lines marked by nsqc itself.
    end: the descriptor to write to."""

    def __init__(self, progress: Progress):
        self.errors: list[str] = []     # Java's last error lines before it has started
        self._progress = progress
        self._has_started = False
        read, self.end = os.pipe()
        threading.Thread(target=self._run, args=(read,), name="java", daemon=True).start()

    def started(self) -> None:
        """Java has inherited its end of the pipe, or did not start."""
        self._has_started = True
        os.close(self.end)

    def _run(self, read: int) -> None:
        with open(read, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(PREFIX):
                    self._progress.note(line.removeprefix(PREFIX).rstrip())
                elif verbose():
                    with suppress(OSError, ValueError):
                        sys.stderr.write(line)
                elif not self._has_started and line.startswith(JAVA_ERRORS):
                    self.errors = [*self.errors, line.strip()][-LAST_LINES:]


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Applies settings for the block."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, setting in settings.items():
        spark.conf.set(key, setting)
    try:
        yield
    finally:
        for key, value in before.items():
            with suppress(Exception):    # the session may have ended
                spark.conf.unset(key) if value is None else spark.conf.set(key, value)


@contextmanager
def signals(action: Callable[[int], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call action(number) in the block; does nothing outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _: action(got)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
