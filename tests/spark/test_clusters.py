"""The recipes of docs/spark.md, on clusters of this machine.

Slow: each application starts a driver, executors and their workers, Java for all but the last.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark.conftest import SPARK_SECONDS, address
from tests.support.daemon import wait_until
from tests.support.ports import free_port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = Path(pyspark.__file__).parent
RECIPES = (ROOT / "docs" / "spark.md").read_text()
SECONDS = 3 * SPARK_SECONDS
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Neither the driver nor its child processes find nsqc in a working folder; PYTHONPATH is where it is installed for the
# driver.
ENV = {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "SPARK_HOME": str(HOME),
       "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_JAVA_OPTS": QUICK}


@contextmanager
def standalone(folder: Path):
    """A master and a worker; yields the master's URL."""
    url = f"spark://127.0.0.1:{free_port()}"
    host, port = url.removeprefix("spark://").split(":")
    with ExitStack() as stack:
        for name, words in (("Master", ["--port", port]), ("Worker", ["-c", "2", "-m", "1g", "-d", str(folder / "work"), url])):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = stack.enter_context(subprocess.Popen(
                [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name.lower()}.{name}", "--host", host,
                 "--webui-port", "0", *words], cwd=folder, env=ENV, stdout=log, stderr=log))
            stack.callback(process.terminate)
            wait_until(lambda name=name: ("I have been elected leader" if name == "Master" else "Successfully registered")
                       in (folder / f"{name}.log").read_text(), name, SECONDS)
        yield url


@pytest.fixture
def packed(tmp_path) -> Path:
    """The archive made of the wheel with `pip install --target packed` and tar."""
    path = tmp_path / "nsqc.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for tree in ("nsqc", "pyspark_nsq", "pyspark_nsq_diskqueue"):
            archive.add(ROOT / tree, tree, filter=lambda info: None if "__pycache__" in info.name else info)
    return path


def submit(folder: Path, url: str, *words: str, node) -> str:
    """The output of the job."""
    job = shutil.copy(HERE / "cluster_job.py", folder)
    ran = subprocess.run([HOME / "bin" / "spark-submit", "--master", url, "--executor-memory", "512m", "--conf",
                          f"spark.executor.extraJavaOptions={QUICK}", "--conf", f"spark.driver.extraJavaOptions={QUICK}",
                          "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1", *words, job,
                          address(node), f"127.0.0.1:{node.http_port}"], cwd=folder, env={**ENV, "PYTHONPATH": str(ROOT)},
                         capture_output=True, text=True, timeout=SECONDS)
    return ran.stdout or ran.stderr[-3000:]


def drive(folder: Path, master: str, node) -> str:
    """The output of the job that makes its own session."""
    ran = subprocess.run([sys.executable, HERE / "cluster_job.py", address(node), f"127.0.0.1:{node.http_port}", master],
                         cwd=folder, env={**ENV, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=SECONDS)
    return ran.stdout or ran.stderr[-3000:]


@pytest.mark.long
def test_a_standalone_cluster_with_and_without_the_archive(daemon, packed, tmp_path):
    (recipe,) = re.findall(r"--archives nsqc\.tar\.gz#nsqc --conf \S+", RECIPES)
    node = daemon("--topic-storage=log")
    with standalone(tmp_path) as url:
        assert submit(tmp_path, url, *recipe.split(), node=node) == "rows 1000\n"
        told = drive(tmp_path, url, node)
        assert told.startswith("failed: ") and "nsq: the workers' Python has no nsqc (" in told, told
    assert node.stats("t")["message_count"] == 1000


@pytest.mark.long
def test_a_local_cluster(daemon, tmp_path):
    (master,) = re.findall(r'session\(master="(local-cluster\S+)"\)', RECIPES)
    node = daemon("--topic-storage=log")
    assert drive(tmp_path, master, node) == "rows 1000\n"
