"""A Spark session for users without a Spark installation: in this process, unreachable from other machines."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypedDict

from nsqc.spark import java as javas
from nsqc.spark import mistakes

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession


# ====================================================================== home
# A SPARK_HOME whose workers start in half the time. Imports no Spark.

ARCHIVE = Path("python", "lib", "pyspark.zip")


def installed() -> Path | None:
    """The folder of the installed pyspark, if it is a complete Spark; otherwise None."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    return folder if folder is not None and (folder / ARCHIVE).exists() else None


def linked(cache: Path | None = None) -> Path | None:
    """A folder of links to the installed Spark, in the user's cache folder, without the archive of pyspark. Workers
    import pyspark from the archive if it exists; it has no byte code, so each compiles it again, for half a second.
    None: Spark is not installed as a package, or the folder cannot be created."""
    spark = installed()
    if spark is None:
        return None
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsqc"
    # Hash of the path and its time: another Spark, or the same path after an upgrade, gets another folder.
    mark = hashlib.sha256(f"{spark}:{(spark / ARCHIVE).stat().st_mtime_ns}".encode()).hexdigest()[:12]
    home = folder / f"spark-{mark}"
    if home.exists():
        return home
    fresh = home.with_name(f"{home.name}.{os.getpid()}.tmp")
    try:
        (fresh / ARCHIVE).parent.mkdir(parents=True)
        for path in spark.iterdir():
            if path.name != "python":
                (fresh / path.name).symlink_to(path)
        with suppress(FileExistsError):     # of another process
            fresh.rename(home)
    except OSError:
        pass
    shutil.rmtree(fresh, ignore_errors=True)
    return home if home.exists() else None


# ====================================================================== workers
# Checks whether the Python of Spark's workers can run nsqc. Imports no Spark.

ANSWER_SECONDS = 60
# Imports of a worker. pyspark.daemon: of this process's Spark.
QUESTION = ("import sys, pyspark.daemon, pyarrow, pyspark_nsq, nsqc.spark.arrow, nsqc.store.log.reading; "
            "print('%d.%d' % sys.version_info[:2])")


def is_this(python: str) -> bool:
    """Whether a worker's Python, a path or a name, is this process's, including packages."""
    path = shutil.which(python)
    return (path is not None and os.path.dirname(os.path.abspath(path)) == os.path.dirname(sys.executable)
            and os.path.samefile(path, sys.executable))


def missing(python: str) -> str | None:
    """Why workers cannot run with this Python; None: they can. Tests a process started as Spark starts workers: in the
    same folder, so with the same module path, and with Spark's own packages first."""
    try:
        answer = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True, timeout=ANSWER_SECONDS,
                                env={**os.environ, "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "YES"})
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode:
        return (answer.stderr.strip().splitlines() or ["it failed"])[-1]
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = answer.stdout.strip()
    return None if found == mine else f"it is Python {found}, but this is {mine}"


def python_path() -> str:
    """PYTHONPATH of workers."""
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(spec.origin) if spec is not None and spec.origin else "")
    packed = [str(path) for path in sorted(Path(home, "python", "lib").glob("*.zip"))] if home else []
    return os.pathsep.join([*packed, *filter(None, [os.environ.get("PYTHONPATH")])])


# ====================================================================== sessions

LOOPBACK = "127.0.0.1"
# Writes a checkpoint's files without the programs that Hadoop starts for each, chmod and readlink: 50 ms per batch.
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_CHECKPOINTS = "org/apache/spark/sql/execution/streaming/checkpointing/FileSystemBasedCheckpointFileManager"
JOIN_SECONDS = 0.1
# Arrow checks bounds and nulls at each access to a value; Spark looks for nulls itself, and workers send sound data.
# Without these checks Java turns columns into rows in two thirds of the time.
ENVIRONMENT = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}
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
        mistakes.print_at_exit()
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
    from nsqc.spark.queue_files import DiskQueueSource
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
    if not is_this(python) and (why := missing(python)) is not None:
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
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Another Python may need the archive that is omitted there.
    if ("SPARK_HOME" not in os.environ and master.startswith("local") and is_this(os.environ["PYSPARK_PYTHON"])
            and (folder := linked()) is not None):
        os.environ["SPARK_HOME"] = str(folder)
