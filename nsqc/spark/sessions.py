"""A Spark session for users without a Spark installation: in this process, unreachable from other machines."""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypedDict

from nsqc.spark import home, reasons, workers
from nsqc.spark import java as javas

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
# Writes a checkpoint's files without the programs that Hadoop starts for each, chmod and readlink: 50 ms per batch.
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_CHECKPOINTS = "org/apache/spark/sql/execution/streaming/checkpointing/FileSystemBasedCheckpointFileManager"
JOIN_SECONDS = 0.1
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.python.unix.domain.socket.enabled": "true",      # 25 to 50 % more rows than over TCP
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


class JavaProcess(TypedDict, total=False):
    """Arguments of subprocess.Popen for Java's process."""

    stderr: int | IO[bytes]
    start_new_session: bool


class NoSpark(RuntimeError):
    """pyspark or pyarrow is missing; the text is one line with a remedy."""


def session(name: str = "nsqc", master: str = "local[*]", settings: Mapping[str, str] | None = None,
            log_level: str = "ERROR", java: JavaProcess | None = None) -> SparkSession:
    """The running SparkSession, or a new local one, with the formats nsq and nsq_diskqueue.

    settings: Spark's own; they override the defaults (loopback only, Unix sockets for workers, no web page, UTC,
    checkpoints written without helper programs).
    log_level: Spark's, such as INFO or OFF. java: arguments for Java's process. From then on, the report of an uncaught
    error of Spark ends with its reason in one line. Raises NoSpark if pyspark is not installed, nsqc.spark.java.NoJava
    if Java is missing.
    """
    need_packages()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        prepare(master)
        effective = {**SETTINGS, **checkpoints(master), **(settings or {})}
        if java is not None:
            launch({"spark.app.name": name, "spark.master": master, **effective}, java)
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in effective.items():
            builder = builder.config(key, value)
        running = builder.getOrCreate()
        running.sparkContext.setLogLevel(log_level)
        reasons.print_at_exit()
    register(running)
    return running


def launch(settings: Mapping[str, str], java: JavaProcess) -> None:
    """Creates a SparkContext with these arguments for its Java process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    if SparkContext._gateway is not None:       # of a session that has ended
        SparkContext(conf=conf)
        return
    # In a daemon thread, where no signal handler raises: launch_gateway would then remove the folder in which Java
    # writes its port, and a Java that cannot write it does not end with this process.
    gateways: list[JavaGateway] = []
    errors: list[BaseException] = []

    def start() -> None:
        try:
            gateways.append(launch_gateway(conf, dict(java)))  # type: ignore[no-untyped-call]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=start, name="launch", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(JOIN_SECONDS)
    if errors:
        raise errors[0]
    SparkContext(conf=conf, gateway=gateways[0])


def checkpoints(master: str) -> dict[str, str]:
    """The checkpoint file manager; Spark's default if this Spark lacks the class, or is not local."""
    import pyspark

    if not master.startswith("local"):
        return {}
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar"):
        with zipfile.ZipFile(jar) as content:
            if f"{PLAIN_CHECKPOINTS}.class" in content.NameToInfo:
                return {CHECKPOINTS: PLAIN_CHECKPOINTS.replace("/", ".")}
    return {}


def register(spark: SparkSession) -> None:
    """Registers nsq and nsq_diskqueue with a session whose workers may not find them by name. Raises NoSpark."""
    need_packages()
    need_workers(spark)
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


def need_workers(spark: SparkSession) -> None:
    """Raises NoSpark if the Python that this session starts for sources has no nsqc. Executors of a cluster may have
    another one of that name: they report it when used. A Connect server has its own."""
    from pyspark.sql import SparkSession

    if type(spark) is not SparkSession:
        return
    python = spark.sparkContext.pythonExec
    if not workers.is_this(python) and (why := workers.missing(python)) is not None:
        raise NoSpark(f"Spark's workers run {python}: {why}; before creating the session, set "
                      f"PYSPARK_PYTHON={sys.executable}")


def prepare(master: str) -> None:
    """Sets up the environment for Spark's Java. Raises NoJava."""
    chosen = javas.find()
    if chosen.home is not None:
        os.environ["JAVA_HOME"] = chosen.home
    # Workers run this, by default the python3 of the PATH, which may lack all packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Another Python may need the archive that is omitted there.
    if ("SPARK_HOME" not in os.environ and master.startswith("local") and workers.is_this(os.environ["PYSPARK_PYTHON"])
            and (folder := home.linked()) is not None):
        os.environ["SPARK_HOME"] = str(folder)
