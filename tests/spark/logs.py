"""Nodes whose topics have logs."""

from __future__ import annotations

import http.client
from pathlib import Path

from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import open_bucket
from nsqc.bucket.takeover import Journal, take_over
from tests.bucket.test_real_logs import FolderLogs
from tests.support.daemon import Daemon, batch
from tests.support.patience import WAIT_SECONDS

FLAGS = ("--topic-storage=log", "--max-bytes-per-file=20000")


def name_of(node: Daemon) -> str:
    return f"127.0.0.1:{node.tcp_port}"


def where(*nodes: Daemon, **more: str) -> dict[str, str]:
    return {"nsqd": ",".join(map(name_of, nodes)), "http": ",".join(f"127.0.0.1:{node.http_port}" for node in nodes),
            **more}


def publish(node: Daemon, topic: str, numbers: range) -> None:
    client = node.connect()
    for at in range(numbers.start, numbers.stop, 100):
        client.ok(f"MPUB {topic}", batch(*(b"%d" % one for one in range(at, min(at + 100, numbers.stop)))))
    client.close()


def shipped(data_path: Path, uri: str, name: str) -> None:
    """Adds all logs of a stopped node to a bucket."""
    owned = take_over(open_bucket(uri), name, Journal.read(str(data_path)), "host", has_files=True, force=True)
    shipper = Shipper(owned, logs := FolderLogs(data_path))
    shipper.start()
    assert logs.done.wait(WAIT_SECONDS) and shipper.stop(WAIT_SECONDS)


def got(node: Daemon, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())
