"""Nodes whose topics have logs."""

from __future__ import annotations

import http.client
from pathlib import Path

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
    node = Daemon(data_path, *FLAGS, f"--bucket={uri}", f"--node-name={name}", "--bucket-take-over")
    try:
        assert node.stop() == 0
    finally:
        node.close()


def got(node: Daemon, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())
