"""The formats through Spark Connect: a server that has nsqc, and a client that knows Spark only by its protocol.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import address
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@pytest.mark.long
def test_there_and_back(daemon, tmp_path):
    one, port = daemon("--topic-storage=log"), str(free_port())
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen([sys.executable, "-m", "tests.spark.connect_server", port], cwd=ROOT, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout.readline() == "ready\n"
            client = subprocess.run([sys.executable, HERE / "connect_client.py", port, address(one),
                                     f"127.0.0.1:{one.http_port}", str(tmp_path)],
                                    cwd=tmp_path, env=elsewhere, capture_output=True, text=True, timeout=300)
            parsing = subprocess.run([sys.executable, "-m", "tests.spark.connect_parsing", port], cwd=ROOT,
                                     capture_output=True, text=True, timeout=300)
        finally:
            server.stdin.close()
            server.wait(WAIT_SECONDS)
    assert client.returncode == 0, client.stderr[-3000:]
    assert "rows 1000 pyspark.sql.connect.session" in client.stdout
    assert "log 1000 999\n" in client.stdout
    assert one.stats("t")["message_count"] == 1000
    assert parsing.stdout == "[('no', None, True), ('{\"a\": 1}', 1, False)] pyspark.sql.connect.session\n", parsing.stderr
