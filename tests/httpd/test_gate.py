"""Closed by default: nsqc's own calls to other machines, and to names that are not the server's."""

import re
import socket

import pytest

from nsqc.access.needs import OPEN, Need
from nsqc.httpd import router
from nsqc.httpd.gate import Caller, Gate, host_name, is_address
from nsqc.httpd.reply import Request
from nsqc.lookupd import views as lookupd_router
from nsqc.options.declared import SERVE, OptionError, Options, Settings
from nsqc.options.resolve import resolve
from nsqc.options.servers import LOOKUPD
from tests.httpd.wire import Wire
from tests.support import network
from tests.support.lookupd import LookupServer

# The answers of nsqd 1.3.0 and nsqlookupd 1.3.0.
NSQD = {"/ping", "/info", "/stats", "/pub", "/mpub", "/config/", "/topic/create", "/topic/delete", "/topic/empty", "/topic/pause",
        "/topic/unpause", "/channel/create", "/channel/delete", "/channel/empty", "/channel/pause", "/channel/unpause",
        "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/pprof/heap", "/debug/pprof/goroutine",
        "/debug/pprof/threadcreate", "/debug/freememory", "/debug/setblockrate"}
NSQLOOKUPD = {"/ping", "/info", "/lookup", "/topics", "/channels", "/nodes", "/debug", "/topic/create", "/topic/delete", "/topic/tombstone",
              "/channel/create", "/channel/delete", "/debug/pprof", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/pprof/heap",
              "/debug/pprof/goroutine", "/debug/pprof/threadcreate"}
# Our own calls that show neither messages nor their location, and control nothing.
HARMLESS = {"/livez", "/readyz", "/metrics", "/message/cancel"}     # the last is for publishers


def routes(*tables):
    """Method, path and route of each."""
    return [(method.decode(), path.decode(), route) for table in tables for method, paths in table.items()
            for path, route in paths.items()]


DAEMON = routes(router.ROUTES, router.FREE_ROUTES)
LOOKUP = routes(lookupd_router.ROUTES)
LOCAL = [(method, path) for method, path, route in DAEMON if route.need.local]


@pytest.fixture(scope="module")
def outside():
    return network.outside()


class Elsewhere:
    """A daemon that listens everywhere, called as from another machine."""

    def __init__(self, node, address):
        self.node, self.address = node, address

    def call(self, method, path, body=b"", headers=""):
        """One request."""
        port = int(re.findall(r"HTTP: listening on \S+:(\d+)", self.node.log)[-1])
        with Wire(socket.create_connection((self.address, port), 60)) as wire:
            wire.request(method, path, body, headers)
            return wire.reply()


@pytest.fixture
def elsewhere(start, outside):
    """elsewhere(*flags) starts one."""
    return lambda *flags: Elsewhere(start("--http-address=0.0.0.0:0", *flags), outside)


# ---------------------------------------------------------------------- the table


@pytest.mark.parametrize(("found", "known"), [(DAEMON, NSQD), (LOOKUP, NSQLOOKUPD)])
def test_every_route_says_what_it_requires(found, known):
    for method, path, route in found:
        need = route.need
        assert isinstance(need, Need)
        assert need.own is (path not in known), path
        assert need.local is (need.own and path not in HARMLESS), path
        if method != "GET":
            assert need.grants in (("admin",), ("publish",), ("publish", "admin")), path
        if not need.grants:
            assert path in {"/ping", "/livez", "/readyz"}, path


# ---------------------------------------------------------------------- other machines


def test_others_neither_see_messages_nor_control_the_node(elsewhere):
    node = elsewhere()
    assert node.call("POST", "/pub?topic=t", b"secret").body == b"OK"
    assert node.call("GET", "/stats?format=json").status == 200
    assert node.call("GET", "/metrics").status == 200
    assert LOCAL
    for method, path in LOCAL:
        reply = node.call(method, f"{path}?topic=t&channel=c", b"{}")
        assert reply.status == 403, path
        assert b"--http-extended-api=all" in reply.body, path
        assert b"secret" not in reply.body
    assert node.node.http("GET", "/topic/peek?topic=t")[0] == 200
    assert node.node.http("GET", "/drain")[0] == 200
    node.node.wait_for(r"refused GET /topic/peek\?topic=t&channel=c .*--http-extended-api")


def test_all_may_if_the_operator_says_so(elsewhere):
    node = elsewhere("--http-extended-api=all")
    assert node.call("POST", "/pub?topic=t", b"x").body == b"OK"
    assert node.call("GET", "/topic/peek?topic=t").json["count"] == 1
    assert node.call("GET", "/debug/slow").status == 200


def test_the_option_is_checked():
    with pytest.raises(OptionError, match="--http-extended-api must be local or all, not 'some'"):
        SERVE.check(Options(http_extended_api="some"))
    with pytest.raises(OptionError, match="--http-extended-api"):
        resolve(LOOKUPD, {"http_extended_api": "some"})


def test_it_changes_while_the_daemon_runs():
    settings = Settings(Options())
    gate = Gate(settings.now)
    settings.on_change(gate.set_options)
    route = router.ROUTES[b"GET"][b"/topic/peek"]
    request = Request(b"GET", b"/topic/peek")
    assert gate.admit(route, request, Caller("192.0.2.7")) is not route
    settings.change(http_extended_api="all")
    assert gate.admit(route, request, Caller("192.0.2.7")) is route


@pytest.mark.parametrize(("host", "is_local"), [
    ("", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("192.0.2.7", False), ("::2", False), ("12.7.0.0", False),
    ("fe80::1%eth0", False),
])
def test_local(host, is_local):
    assert Caller(host).is_local is is_local


# ---------------------------------------------------------------------- names


def ask(node, path, host, more=""):
    """The status of a request with this Host."""
    with node.wire() as wire:
        wire.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        reply = wire.reply()
    return reply


def test_names_of_others(start):
    node = start("--broadcast-address=Node-7.example", "--http-allowed-hosts=front.example", "--http-allowed-hosts=a.b,*.proxy.example")
    node.post("/pub?topic=t", b"x")
    good = ["localhost", "LOCALHOST:4151", "localhost.", "127.0.0.1", "10.1.2.3:80", "[::1]:4151", socket.gethostname(), "node-7.example:4151",
            "front.example", "a.b:1", "x.proxy.example"]
    bad = ["rebound.example", "localhost.rebound.example", "127.0.0.1.rebound.example", "proxy.example", "front.example.evil:80", "1", "0x7f.1"]
    for host in good:
        assert ask(node, "/topic/peek?topic=t", host).status == 200, host
        assert ask(node, "/stats", host, f"Origin: http://{host}\r\n").status == 200, host
    for host in bad:
        reply = ask(node, "/topic/peek?topic=t", host)
        assert reply.status == 403, host
        assert "--http-allowed-hosts=" in reply.json["message"]
        assert ask(node, "/metrics", host).status == 403
        assert ask(node, "/stats", host, f"Origin: http://{host}\r\n").status == 403
        # nsqd's own calls from programs.
        assert ask(node, "/stats", host).status == 200
        assert ask(node, "/ping", host).status == 200
    with node.wire() as wire:
        wire.send(b"POST /pub?topic=t HTTP/1.1\r\nHost: rebound.example\r\nOrigin: http://rebound.example\r\nContent-Length: 1\r\n\r\nx")
        assert wire.reply().status == 403
        wire.send(b"POST /pub?topic=t HTTP/1.1\r\nHost: any.example\r\nContent-Length: 1\r\n\r\nx")
        assert wire.reply().status == 200
    # HTTP/1.0 needs no Host, and browsers send one.
    with node.wire() as wire:
        wire.send(b"GET /topic/peek?topic=t HTTP/1.0\r\n\r\n")
        assert wire.reply().status == 200


@pytest.mark.parametrize(("header", "name"), [
    ("a", "a"), ("A.b:1", "a.b"), ("[::1]", "::1"), ("[FE80::1]:4151", "fe80::1"), ("a:", "a"), ("a.", "a"), ("a.:80", "a"),
])
def test_host_names(header, name):
    assert host_name(header) == name


def test_addresses():
    assert all(map(is_address, ["127.0.0.1", "::1", "::ffff:1.2.3.4"]))
    assert not any(map(is_address, ["", "1", "127.1", "a", "127.0.0.1.", "1.2.3.4.5"]))


# ---------------------------------------------------------------------- every answer


def test_nosniff(start):
    node = start()
    for method, path in [("GET", "/ping"), ("POST", "/pub?topic=t"), ("POST", "/pub?topic=t&defer=0"), ("GET", "/stats"), ("GET", "/metrics"),
                         ("GET", "/nothing"), ("POST", "/ping"), ("GET", "/ping/"), ("OPTIONS", "/pub"), ("GET", "/topic/peek?topic=t"),
                         ("GET", "/debug/pprof/"), ("GET", "/topic/peek")]:
        reply = node.call(method, path, b"x" if method == "POST" else b"")
        assert reply.headers["x-content-type-options"] == "nosniff", path
    with node.wire() as wire:
        wire.send(b"nonsense\r\n\r\n")
        assert wire.reply().headers["x-content-type-options"] == "nosniff"


# ---------------------------------------------------------------------- the lookup server


def test_the_lookup_server(tmp_path):
    lookupd = LookupServer(tmp_path / "lookupd.log")
    try:
        for path, host, more, status in [("/topics", "x.example", "", 200), ("/topics", "x.example", "Origin: http://x.example\r\n", 403),
                                         ("/metrics", "x.example", "", 403), ("/metrics", "localhost", "", 200),
                                         ("/debug/slow", "127.0.0.1", "", 200)]:
            with Wire(socket.create_connection(("127.0.0.1", lookupd.http_port), 60)) as wire:
                wire.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
                reply = wire.reply()
                assert (reply.status, reply.headers["x-content-type-options"]) == (status, "nosniff")
        assert lookupd.stop() == 0
    finally:
        lookupd.close()


def test_open_routes_are_never_refused():
    gate = Gate(Options())
    request = Request(b"GET", b"/ping")
    request.host, request.from_page, request.foreign = b"evil.example", True, True
    assert [gate.admit(route, request, Caller("192.0.2.7")) is route for _, _, route in DAEMON if route.need is OPEN] == [True]
