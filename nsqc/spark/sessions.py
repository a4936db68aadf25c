"""A Spark session for people without a Spark set-up: in this process, on this machine, reachable from nowhere else."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from nsqc.spark import java as javas
from nsqc.spark import reasons

LOOPBACK = "127.0.0.1"
JOIN_SECONDS = 0.1
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


class NoSpark(RuntimeError):
    """pyspark or pyarrow is missing; the text is one line that says what to do."""


def session(name: str = "nsqc", master: str = "local[*]", settings: Mapping[str, str] | None = None,
            log_level: str = "ERROR", java: Mapping[str, Any] | None = None) -> Any:
    """The running SparkSession, or a new local one, with the formats nsq and nsq_diskqueue.

    settings: Spark's own, above the defaults here (loopback only, no web page, UTC). log_level: Spark's, such as INFO
    or OFF. java: what subprocess.Popen is told of Java's process, such as stderr. An error
    that nobody catches ends with its reason in one line from then on. Raises NoSpark where pyspark is not installed,
    nsqc.spark.java.NoJava where there is no Java.
    """
    need_packages()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        prepare()
        known = {**SETTINGS, **(settings or {})}
        if java is not None:
            launch({"spark.app.name": name, "spark.master": master, **known}, java)
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in known.items():
            builder = builder.config(key, value)
        running = builder.getOrCreate()
        running.sparkContext.setLogLevel(log_level)
        reasons.say_at_the_end()
    register(running)
    return running


def launch(settings: Mapping[str, str], java: Mapping[str, Any]) -> None:
    """A SparkContext whose Java process is made so."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    if SparkContext._gateway is not None:       # of a session that has ended
        SparkContext(conf=conf)
        return
    # In a daemon thread, where no signal's exception comes up: launch_gateway would take away the folder in which Java
    # says its port, and a Java that cannot say it does not end when this process does.
    done: list[Any] = []

    def start() -> None:
        try:
            done.append(launch_gateway(conf, dict(java)))
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=start, name="launch", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(JOIN_SECONDS)
    if isinstance(done[0], BaseException):
        raise done[0]
    SparkContext(conf=conf, gateway=done[0])


def register(spark: Any) -> None:
    """Makes the formats nsq and nsq_diskqueue known to a session whose workers may not find them by themselves."""
    need_packages()
    from nsqc.spark.diskqueue import DiskQueueSource
    from nsqc.spark.source import NsqSource

    spark.dataSource.register(NsqSource)
    spark.dataSource.register(DiskQueueSource)


def need_packages() -> None:
    """Raises NoSpark."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise NoSpark(f"{error.name} is missing: pip install 'nsqc[spark]'") from None


def prepare() -> None:
    """What has to stand in the environment before Spark's Java starts. Raises NoJava."""
    found = javas.find()
    if found.home is not None:
        os.environ["JAVA_HOME"] = found.home
    # Workers run what is named here, not what runs now: a python3 of the PATH may lack all packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
