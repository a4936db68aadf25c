"""One Spark session for all tests, tuned to start fast, and shared fixtures."""

import json
import os
import sys
import uuid
from pathlib import Path

import pytest

from nsqc.commands.app import run
from nsqc.spark import sessions
from tests.spark.logs import FLAGS
from tests.support.daemon import Daemon
from tests.support.patience import WAIT_SECONDS

SPARK_SECONDS = 9 * WAIT_SECONDS       # for a Java that starts on a busy machine
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "4",
}


@pytest.fixture(scope="session", autouse=True)
def quick_workers(tmp_path_factory):
    """The settings of nsqc's own sessions, for Java that tests start otherwise, too: Spark waits 10 s for a worker to
    start, which cannot be configured."""
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(sessions.linked(tmp_path_factory.mktemp("spark_home")))
    yield
    if before is None:
        del os.environ["SPARK_HOME"]
    else:
        os.environ["SPARK_HOME"] = before


@pytest.fixture(scope="session")
def spark(tmp_path_factory, quick_workers):
    """Two threads; a failed task is retried, unlike with plain local[2]."""
    from nsqc.spark import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    running = session("nsqc-tests", "local[2,4]", log_level="OFF", settings={
        **SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)})
    yield running
    running.stop()


@pytest.fixture(scope="session")
def nsqd(tmp_path_factory):
    """A daemon shared by many tests, each with its own topics."""
    one = Daemon(tmp_path_factory.mktemp("nsqd") / "data", "--sync-timeout=100ms", "--max-req-timeout=1h")
    yield one
    one.close()


@pytest.fixture(scope="session")
def log_node(tmp_path_factory):
    """The same, with topics in logs by default."""
    one = Daemon(tmp_path_factory.mktemp("log_node") / "data", "--topic-storage=log", "--log-retain-time=1h")
    yield one
    one.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two nodes whose topics have logs."""
    made = [Daemon(tmp_path_factory.mktemp("log") / "data", *FLAGS) for _ in range(2)]
    yield made
    for node in made:
        node.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node whose topics have logs."""
    one = Daemon(tmp_path_factory.mktemp("log") / "data", *FLAGS)
    yield one
    one.close()


@pytest.fixture
def job(capfd):
    """job(*words) -> stdout of a job that has done what it should; with code, stderr of one that has not. A test that
    needs Spark asks for the fixture spark, too."""
    def call(*words, code: int = 0) -> str:
        got = run(["spark", *map(str, words)])
        told, errors = capfd.readouterr()
        assert got == code, (words, told, errors[-2000:])
        return errors if code else told

    return call


@pytest.fixture
def topic():
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


def address(*daemons: Daemon) -> str:
    """For the option nsqd."""
    return ",".join(f"127.0.0.1:{one.tcp_port}" for one in daemons)


def received(daemon, topic: str, count: int) -> list[bytes]:
    """The bodies of N messages of a channel c, finished; nothing else is there."""
    reader = daemon.connect().sub(topic, "c", 2500)
    found = [message.body for message in reader.messages(count, finish=True)]
    assert reader.quiet(0.05)
    reader.close()
    return found


def depth(daemon: Daemon, name: str) -> int:
    """Messages that a topic has accepted; 0 if it does not exist."""
    found = json.loads(daemon.http("GET", f"/stats?format=json&topic={name.replace('#', '%23')}")[1])["topics"]
    return found[0]["message_count"] if found else 0


def bodies(folder: Path) -> list[bytes]:
    """The column value of a folder of Parquet files that Spark has committed."""
    import pyarrow.parquet as pq

    log = folder / "_spark_metadata"
    names = set()
    for entry in sorted(log.iterdir(), key=lambda path: path.name) if log.exists() else []:
        if not entry.name.startswith("."):
            names |= {json.loads(line)["path"].rsplit("/", 1)[1] for line in entry.read_text().splitlines()[1:]}
    return [value for name in names for value in pq.read_table(folder / name, columns=["value"])["value"].to_pylist()]


@pytest.fixture
def lookupd():
    """A small nsqlookupd: lookupd(daemon, ...) reports that these have every topic; returns its address."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    servers = []

    def start(*daemons: Daemon) -> str:
        known = list(daemons)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"version": "1.3.0", "topics": start.topics, "producers": [
                    {"broadcast_address": "127.0.0.1", "tcp_port": one.tcp_port, "http_port": one.http_port}
                    for one in known]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.known = known
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    start.servers = servers
    start.topics = []
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
