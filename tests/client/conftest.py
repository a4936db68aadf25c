"""Daemons with certificates and auth servers, and a small nsqlookupd."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvloop

from tests.client.faults import Proxy
from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates

authd = factory(AuthServer)


@pytest.fixture(scope="session")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


class Lookupd:
    """Answers /lookup and /nodes with the nsqd of a list. status: of its answers; body: replaces the list; refusal: the
    message of a 404."""

    def __init__(self):
        self.ports: list[int] = []
        self.status, self.asked, self.refusal = 200, [], "TOPIC_NOT_FOUND"
        self.body: bytes | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                body = json.dumps({"channels": [], "producers": [
                    {"broadcast_address": "127.0.0.1", "tcp_port": port, "http_port": 1} for port in outer.ports]})
                if outer.status == 404:
                    body = json.dumps({"message": outer.refusal})
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(body.encode() if outer.body is None else outer.body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def lookupd():
    found = Lookupd()
    yield found
    found.close()


def address(node) -> str:
    return f"127.0.0.1:{node.tcp_port}"


@pytest.fixture
def proxy():
    """Starts proxies in front of daemons: proxy(node)."""
    running = []

    def start(node) -> Proxy:
        running.append(Proxy(node.tcp_port))
        return running[-1]

    yield start
    for one in running:
        one.close()


def runner_of(factory):
    """Runs a coroutine function on a loop of this kind, within 60 s."""
    def run(main):
        async def bounded():
            async with asyncio.timeout(WAIT_SECONDS):
                return await main()

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded())

    return run


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    """On each kind of event loop: for tests of bytes, sockets and cancellation."""
    return runner_of(request.param)


@pytest.fixture
def run_asyncio():
    """On asyncio's own loop: for behaviour that does not depend on the loop."""
    return runner_of(None)
