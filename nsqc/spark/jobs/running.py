"""How every job runs: its Spark session, its stop by a signal, its one line where it fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from nsqc.spark.jobs.progress import PREFIX, Progress
from nsqc.spark.reasons import is_sparks, reason

FAILED = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT)
CANCEL_SECONDS = 0.3
JAVA_TROUBLE = ("Error", "Exception", "Invalid", "Unrecognized", "OpenJDK 64-Bit Server VM warning: INFO: os::commit")
LAST_LINES = 3
_asked = False


class JobError(RuntimeError):
    """A job cannot do what it was asked; the text is one line for its user."""


class Stopped(BaseException):
    """SIGTERM or SIGINT has come. No Exception, so that nothing on the way takes it for a failed call."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def failures() -> Iterator[Progress]:
    """Ends the job with one line for whatever is raised in it, and its exit code: 128 and the signal's number where it
    was stopped by one, else 1. With --verbose the traces come before that line."""
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
    """What a job that failed has done all the same."""
    return f"; {progress.summary()}" if progress.count() else ""


def fail(text: str, code: int = FAILED) -> None:
    """Raises typer's Exit."""
    print(f"{PREFIX}{' '.join(text.split())}", file=sys.stderr)
    raise typer.Exit(code)


def show_trace() -> None:
    """Where the exception came from, for who asked for it."""
    if verbose():
        traceback.print_exc()


def verbose() -> bool:
    """Whether traces and Java's log are to be seen: --verbose, or NSQC_VERBOSE in the environment."""
    return _asked or os.environ.get("NSQC_VERBOSE", "").lower() not in ("", "0", "false", "no")


def be_verbose(asked: bool) -> bool:
    """A callback for typer."""
    global _asked
    _asked = asked
    return asked


@contextmanager
def session(name: str, progress: Progress, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A Spark session with the formats, ended afterwards unless it was there before; within, SIGTERM and SIGINT cancel
    what runs, and then raise Stopped. settings: of spark.sql, for as long as this lasts. Raises NoSpark, NoJava,
    JobError where Java does not start."""
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
    """Cancels Spark's jobs from a signal on. From a thread of its own: the main thread's connection to Java is taken by
    the very call that is to end, and an exception raised in the midst of that would leave it unusable."""

    def __init__(self, spark: Any, progress: Progress):
        self.number = 0         # the signal
        self._spark = spark
        self._hurry = Hurry(progress)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cancel", daemon=True)

    def begin(self, number: int) -> None:
        """What a signal does."""
        self._hurry.count(number)
        if not self.number:
            self.number = number
            self._thread.start()

    def _run(self) -> None:
        """Again and again: the next job may only be about to begin."""
        while not self._ended.is_set():
            with suppress(Exception):   # Java may have gone
                self._spark.sparkContext.cancelAllJobs()
            self._ended.wait(CANCEL_SECONDS)

    def end(self) -> None:
        """Cancels nothing from now on."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


class Hurry:
    """Ends the process at the third signal, whatever hangs."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._signals = 0

    def count(self, number: int) -> None:
        """One more has come."""
        self._signals += 1
        if self._signals == 1:
            self._progress.stopping()
        elif self._signals == 2:
            self._progress.note("already stopping; a third signal ends the job at once")
        else:
            os.write(2, f"\n{PREFIX}ended at once by {signal.Signals(number).name}\n".encode())
            os._exit(128 + number)


class Stop:
    """What a signal does outside of Spark: raises Stopped once; more of them do not disturb what that brings about."""

    def __init__(self, progress: Progress):
        self._hurry = Hurry(progress)
        self._is_raised = False

    def __call__(self, number: int) -> None:
        self._hurry.count(number)
        if not self._is_raised:
            self._is_raised = True
            raise Stopped(number)


def start(name: str, progress: Progress) -> tuple[Any, bool]:
    """The running session, or a new one; whether it is new. Raises NoSpark, NoJava, JobError."""
    from nsqc.spark import sessions

    sessions.need_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        return sessions.session(name), False
    progress.show("starting Spark…")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has decided where this runs; a local master would overrule it.
        SparkSession.builder.appName(name).getOrCreate().sparkContext.setLogLevel(log_level())
        return sessions.session(name), True
    os.environ["NSQC_SPARK_LOG"] = PREFIX       # so that workers mark the lines that are for the job's user
    sieve = Sieve(progress)
    try:
        # A session of its own: Ctrl-C is for this process alone, which then cancels tasks in order.
        return sessions.session(name, log_level=log_level(), java={
            "stderr": sieve.end, "start_new_session": True}), True
    except Exception as error:
        if not sieve.last:
            raise
        raise JobError(f"Java did not start: {'; '.join(sieve.last)}") from error
    finally:
        sieve.started()


def log_level() -> str:
    """Spark's: what goes wrong is told in one line by the job itself."""
    return "WARN" if verbose() else "OFF"


class Sieve:
    """Java's stderr, and that of the workers behind it: with --verbose everything passes, else only the lines that
    nsqc's own code has marked. end: a descriptor to write to."""

    def __init__(self, progress: Progress):
        self.last: list[str] = []       # what Java said last and was kept back, until it has started
        self._progress = progress
        self._has_started = False
        read, self.end = os.pipe()
        threading.Thread(target=self._run, args=(read,), name="java", daemon=True).start()

    def started(self) -> None:
        """Java has its end of the pipe, or never will."""
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
                elif not self._has_started and line.startswith(JAVA_TROUBLE):
                    self.last = [*self.last, line.strip()][-LAST_LINES:]


@contextmanager
def configured(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """Settings that hold for as long as this lasts."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            with suppress(Exception):    # the session may be gone
                spark.conf.unset(key) if value is None else spark.conf.set(key, value)


@contextmanager
def signals(action: Callable[[int], None]) -> Iterator[None]:
    """Has SIGTERM and SIGINT call action(number) instead of what they did. Only a main thread may have it so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _: action(got)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
