"""A lookup server, nodes and admin servers for these tests."""

import itertools

import pytest

from tests.support.admin import AdminServer
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer


class Cluster:
    """A lookup server, nodes that register with it, and admin servers."""

    def __init__(self, folder):
        self._folder = folder
        self._numbers = itertools.count()
        self.lookupd = LookupServer(folder / "lookupd.log")
        self.nodes: list[Daemon] = []
        self.admins: list[AdminServer] = []

    def node(self, *flags) -> Daemon:
        node = Daemon(self._folder / f"node{next(self._numbers)}", "--broadcast-address=127.0.0.1",
                      f"--lookupd-tcp-address={self.lookupd.tcp_address}", *flags)
        self.nodes.append(node)
        wait_until(lambda: any(each["http_port"] == node.http_port for each in self.lookupd.get("/nodes")["producers"]))
        return node

    def admin(self, *flags, source=None) -> AdminServer:
        """source: in place of the lookup server."""
        self.admins.append(AdminServer(self._folder / f"admin{next(self._numbers)}.log",
                                       source or f"--lookupd-http-address={self.lookupd.http_address}", *flags))
        return self.admins[-1]

    def registered(self, topic, *nodes):
        """Waits until a topic of nodes is found."""
        ports = {node.http_port for node in nodes}

        def found():
            status, body = self.lookupd.call("GET", f"/lookup?topic={topic}")
            import json

            return status == 200 and {each["http_port"] for each in json.loads(body)["producers"]} >= ports

        wait_until(found)

    def close(self):
        for each in (*self.admins, *self.nodes, self.lookupd):
            each.close()
        for each in self.admins:
            assert "panic" not in each.log and "Error" not in each.log, each.log


@pytest.fixture
def cluster(tmp_path):
    """Two nodes are started by those who want them."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def address(node) -> str:
    """HOST:PORT of a node's HTTP API."""
    return f"127.0.0.1:{node.http_port}"
