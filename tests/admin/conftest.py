"""A lookup server, nodes, admin servers and a browser for these tests."""

import itertools
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqc.access.rules import make
from tests.admin.browser import CHROMIUM, EVIL, Visit
from tests.support.admin import AdminServer
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer

API = "/api/v1"


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
        """source: used in place of the lookup server."""
        self.admins.append(AdminServer(self._folder / f"admin{next(self._numbers)}.log",
                                       source or f"--lookupd-http-address={self.lookupd.http_address}", *flags))
        return self.admins[-1]

    def registered(self, topic, *nodes):
        """Waits until all nodes report a topic."""
        ports = {node.http_port for node in nodes}

        def found():
            status, body = self.lookupd.call("GET", f"/lookup?topic={topic}")
            return status == 200 and {each["http_port"] for each in json.loads(body)["producers"]} >= ports

        wait_until(found)

    def close(self):
        for each in (*self.admins, *self.nodes, self.lookupd):
            each.close()
        for each in self.admins:
            assert "panic" not in each.log and "Error" not in each.log, each.log


@pytest.fixture
def cluster(tmp_path):
    """Two nodes; a test starts those that it needs."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def address(node) -> str:
    """HOST:PORT of a node's HTTP API."""
    return f"127.0.0.1:{node.http_port}"


def made() -> tuple[str, str]:
    """A token and its entry in an access file."""
    token, stored = make()
    return token, str(stored)


def seen(admin, path, condition):
    """Waits until an answer satisfies the condition, and returns it."""
    def look():
        answer = admin.call("GET", API + path)
        return answer.json if answer.status == 200 and condition(answer.json) else None

    return wait_until(look)


def log_topic(node, name="l", count=5):
    node.http("PUT", f"/topic/rules?topic={name}", b'{"storage": "log"}')
    for number in range(count):
        node.post(f"/pub?topic={name}", json.dumps({"number": number}).encode())
    node.post(f"/channel/create?topic={name}&channel=c")


@pytest.fixture(scope="module")
def chromium():
    """Module-scoped: while it runs, asyncio.run() cannot."""
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    visits = []

    def start(url, **more):
        visits.append(Visit(chromium, url, **more))
        return visits[-1]

    yield start
    for each in visits:
        each.context.close()


@pytest.fixture
def fleet(cluster):
    """Two nodes with a topic in memory, one in a log, a consumer and messages; and an admin server."""
    one, other = (cluster.node("--msg-timeout=15m") for _ in range(2))     # one stays in flight
    for node in (one, other):
        node.post("/topic/create?topic=orders")
        for channel in ("billing", "shipping"):
            node.post(f"/channel/create?topic=orders&channel={channel}")
        node.post("/pub?topic=orders", json.dumps({"id": 12345678901234567890, "note": EVIL}).encode())
        node.post("/pub?topic=orders", b"\x00\xffbinary")
    log_topic(one, "audit", 20)
    cluster.registered("orders", one, other)
    client = one.connect()
    body = json.dumps({"client_id": EVIL, "hostname": EVIL, "user_agent": EVIL}).encode()
    client.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
    client.frame()
    client.sub("orders", "billing", 1)
    admin = cluster.admin()
    seen(admin, "/topics/orders/billing", lambda data: len(data["node_rows"]) == 2 and data["consumers"])
    seen(admin, "/topics/audit", lambda data: data["logs"])
    cluster.one, cluster.other, cluster.client = one, other, client
    return admin


@pytest.fixture
def two(cluster):
    one, other = cluster.node("--mem-queue-size=100"), cluster.node()
    for node in (one, other):
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        node.post("/pub?topic=t", b'{"n": 1}')
    cluster.registered("t", one, other)
    return one, other


class Prometheus:
    """A server that answers like Prometheus: 7 for the depth of channels, at both ends of the range."""

    def __init__(self):
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                query = parse_qs(urlsplit(self.path).query)
                asked.append((urlsplit(self.path).path, query["query"][0]))
                start, end = int(query["start"][0]), int(query["end"][0])
                value = "7" if "nsqc_channel_depth" in query["query"][0] else "NaN"
                body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
                    {"metric": {}, "values": [[start, value], [end, value]]}]}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/prom"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def prometheus():
    server = Prometheus()
    yield server
    server.close()
