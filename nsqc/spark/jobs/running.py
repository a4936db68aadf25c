"""How every job runs: its Spark session, its stop by a signal, its one line where it fails."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

FAILED = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT)
CANCEL_SECONDS = 0.3
# The last line of a Python traceback that a worker has sent: nsqc.spark.options.OptionError: nsq: …
RAISED = re.compile(r"^((?:[a-z_]\w*\.)*)([A-Z]\w+): (\S.*)$", re.MULTILINE)


class JobError(RuntimeError):
    """A job cannot do what it was asked; the text is one line for its user."""


class Stopped(BaseException):
    """SIGTERM or SIGINT has come. No Exception, so that nothing on the way takes it for a failed call."""


@contextmanager
def failures() -> Iterator[None]:
    """Ends the job with exit code 1 and one line for whatever is raised in it that users can do something about."""
    try:
        yield
    except Stopped as stop:
        fail(f"stopped by {stop}")
    except (RuntimeError, ValueError, OSError) as error:
        fail(str(error))
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j", "pyarrow"):
            raise
        fail(reason(error))


def fail(text: str) -> None:
    """Raises typer's Exit."""
    print(f"nsqc spark: {' '.join(text.split())}", file=sys.stderr)
    raise typer.Exit(FAILED)


def reason(error: Exception) -> str:
    """What went wrong in a Spark job, without Java's and Python's stacks: the last exception of a worker, else what
    Spark has names for, [SUCH_AS_THIS], else the first cause."""
    found: list[tuple[str, str, str]] = []
    for text in causes(error):
        found += RAISED.findall(text) if "Traceback" in text else []
    if found:
        module, name, what = found[-1]
        return what if module.startswith("nsqc.") else f"{name}: {what}"
    lines = [next((line.strip() for line in text.splitlines() if line.strip()), "") for text in causes(error)]
    named = list(dict.fromkeys(line for line in lines if line.startswith("[")))
    return ": ".join(named) or next((line for line in reversed(lines) if line), type(error).__name__)


def causes(error: Exception) -> list[str]:
    """The texts of an exception and, where it was Java's, of its causes, the first cause last."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return [str(error)]
    texts = []
    while cause is not None and len(texts) < 20:
        texts.append(str(cause.getMessage()))
        cause = cause.getCause()
    return texts


@contextmanager
def session(name: str, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A Spark session with the formats, ended afterwards unless it was there before; within, SIGTERM and SIGINT cancel
    what runs, and then raise Stopped. settings: of spark.sql, for as long as this lasts. Raises NoSpark, NoJava."""
    with signals(stop):
        spark, is_ours = start(name)
    canceller = Canceller(spark)
    try:
        with configured(spark, settings or {}), signals(canceller.begin):
            yield spark
    except Exception as error:
        if canceller.reason:
            raise Stopped(canceller.reason) from error
        raise
    finally:
        with signals(lambda number: None):
            canceller.end()
            if is_ours:
                spark.stop()


class Canceller:
    """Cancels Spark's jobs from a signal on. From a thread of its own: the main thread's connection to Java is taken by
    the very call that is to end, and an exception raised in the midst of that would leave it unusable."""

    def __init__(self, spark: Any):
        self.reason = ""        # the signal's name
        self._spark = spark
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cancel", daemon=True)

    def begin(self, number: int) -> None:
        """What a signal does."""
        if not self.reason:
            self.reason = signal.Signals(number).name
            self._thread.start()

    def _run(self) -> None:
        """Again and again: the next job may only be about to begin."""
        while not self._ended.is_set():
            self._spark.sparkContext.cancelAllJobs()
            self._ended.wait(CANCEL_SECONDS)

    def end(self) -> None:
        """Cancels nothing from now on."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


def start(name: str) -> tuple[Any, bool]:
    """The running session, or a new one; whether it is new."""
    from nsqc.spark import sessions

    sessions.need_packages()
    from pyspark.sql import SparkSession

    is_new = SparkSession.getActiveSession() is None
    if is_new and "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has decided where this runs; a local master would overrule it.
        SparkSession.builder.appName(name).getOrCreate()
    return sessions.session(name), is_new


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


def stop(number: int) -> None:
    """Raises Stopped."""
    raise Stopped(signal.Signals(number).name)


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
