"""No smuggled request is executed: each case is read as h11 reads it, or refused and the connection closed."""

import contextlib
import random
import re
import socket
import ssl
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqc.access.needs import OPEN
from nsqc.httpd.connection import RequestReader
from nsqc.httpd.gate import Caller, Gate
from nsqc.httpd.reply import Route
from nsqc.httpd.site import KnownPublishes, ServerState
from nsqc.options.declared import Options
from tests.httpd.conftest import HttpDaemon
from tests.httpd.oracle import Meaning, Seen, Unknown, lenient_meaning, meaning
from tests.httpd.smuggling import CASES, CHUNKED, NEXT, OFFERS
from tests.httpd.wire import Wire, chunked, request
from tests.support.lookupd import LookupServer
from tests.support.secure import self_signed

LIMIT = 1 << 20
DEADLINE_S = 60
WANTED = Route(lambda app, request: None, OPEN, body_limit=lambda options: LIMIT, reads_body=True)


class Recorder:
    """A pipeline that only records requests."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.blocked = self.closing = self.unread = False

    def publish(self, topic: bytes, body: bytes) -> bool:
        self.requests.append(Seen(b"POST", b"/pub?topic=" + topic, body))
        return True

    def handle(self, request) -> None:
        self.closing |= not request.keep_alive
        if request.route is WANTED and not request.broken:
            self.requests.append(Seen(request.method, request.url, request.body))

    def interim(self, line: bytes) -> None:
        pass


def run(pieces) -> Meaning:
    """The reader's result for bytes that come in pieces."""
    pipeline = Recorder()
    site = SimpleNamespace(publishes=KnownPublishes(), max_msg_size=LIMIT, resolve=lambda request: WANTED, gate=Gate(Options()),
                           body_limit=lambda route: None if route.body_limit is None else LIMIT)
    reader = RequestReader(site, ServerState(None, tls=False, tls_required=False), pipeline, "here", Caller(""), {})
    for piece in pieces:
        at = 0
        while at < len(piece) and not pipeline.closing:
            at = reader.take(piece, at)
    return Meaning(pipeline.requests, pipeline.closing)


# ---------------------------------------------------------------------- the reader compared with h11

# nsqc refuses these and closes, though h11 accepts them: other servers read them differently.
STRICTER = {
    "CONNECT": "what follows it may be meant for the host that it names",
    "lengths in a list": "Go refuses it",
    "length and coding": "nothing says which of them the sender goes by",
    "folded lines": "some servers take them for fields of their own",
    "controls in a value, in an extension": "Go refuses them in values",
    "bytes in Host that no name has": "Go refuses them",
    "other line ends in chunks and trailers": "Go has taken them for line ends, others for data: CVE-2025-22871",
    "trailers without end": "they are bounded, as in Go",
    "lengths that take more than 60 bits": "others overflow; h11 waits for the body",
    "expectations": "417, as in Go",
    "versions": "only HTTP/1.x is answered, as in Go",
    "targets": "only paths, *, and absolute ones are, as in Go",
    "HTTP/1.0 with chunks": "RFC 9112, 6.1: its framing is faulty",
}
STRICTLY = {
    **{name: "CONNECT" for name in CASES if name.startswith("CONNECT")},
    **{name: "folded lines" for name in CASES if "folded" in name},
    **{f"coding and length 0: {name}": "length and coding"
       for name in ("tab", "no space", "capitals", "blanks", "behind a line feed")},
    **{f"host: {name}": "bytes in Host that no name has" for name in ("slash", "at", "space", "above ASCII")},
    **{f"HTTP/1.0, {name}": "HTTP/1.0 with chunks" for name in ("chunks", "chunks and length")},
    "length: comma": "lengths in a list",
    "length and coding": "length and coding",
    "coding and length": "length and coding",
    "coding: space before the name": "folded lines",
    "coding and length 0: space before the name": "folded lines",
    "field: empty line with a space": "folded lines",
    "field: delete": "controls in a value, in an extension",
    "field: escape": "controls in a value, in an extension",
    "chunks: extension with a carriage return": "controls in a value, in an extension",
    "chunks: extension with a zero byte": "controls in a value, in an extension",
    "chunks: line feed at the end": "other line ends in chunks and trailers",
    "trailer: line feed": "other line ends in chunks and trailers",
    "trailer: too many": "trailers without end",
    "field: expect other": "expectations",
    **dict.fromkeys(("length: 64 bits", "chunks: huge size", "chunks: size of 64 bits"), "lengths that take more than 60 bits"),
    "line: HTTP/2.0": "versions",
    "line: HTTP/0.9": "versions",
    "preface": "versions",
    "line: relative": "targets",
    "line: backslash": "targets",
}
# nsqc, like nsqd, executes these though h11 refuses them. No other server can see another request in them.
LIKE_GO = {
    "line: above ASCII": "clients send names and arguments in UTF-8 without escapes",
    "line: above ASCII in the path": "the same",
    "empty line before": "RFC 9112, 2.2: a server should ignore it",
    "line feed before": "the same",
    "carriage return before": "the same, and it is no line end anywhere else",
    "empty line behind a body": "the same: old clients send it behind a POST",
    "HTTP/1.0, keep-alive": "ab and old proxies ask for it; h11 always closes",
}


def test_the_lists_name_cases():
    assert (STRICTLY.keys() | LIKE_GO.keys()) <= CASES.keys()
    assert set(STRICTLY.values()) == STRICTER.keys()


def test_every_case_is_read_as_by_h11_or_refused():
    for name, data in CASES.items():
        found, strict = run([data]), meaning(data)
        if name in LIKE_GO:
            assert len(strict.requests) < len(found.requests) == 2, name
            assert found == lenient_meaning(data), name
        elif name in STRICTLY and found != strict:
            assert found.closes, name
            assert found.requests == strict.requests[:len(found.requests)], name
            assert len(found.requests) <= name.startswith("CONNECT"), name
        else:
            assert found == strict, name


def test_pieces_mean_what_the_whole_means():
    for name, case in CASES.items():
        data = case[-2000:] if name == "trailer: too many" else case
        whole = run([data])
        assert run(data[at:at + 1] for at in range(len(data))) == whole, name
        for at in range(1, len(data), 5):
            assert run([data[:at], data[at:]]) == whole, (name, at)


@pytest.mark.parametrize("seed", range(5))
def test_no_mutant_makes_it_see_more_than_h11(seed):
    """Bytes removed, doubled, swapped or taken from other cases, several in each stream."""
    chance = random.Random(seed)
    cases = list(CASES.values())
    special = [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"3\r\n", b"\xc3\xbc", b"\r\n\r\n", CHUNKED,
               b"Content-Length: 3\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"HTTP/1.0", b"HTTP/1.1", b"POST ", NEXT]
    for _ in range(1000):
        data = bytearray(chance.choice(cases)[:1500] + chance.choice(cases)[:1500])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            end = at + chance.choice((0, 0, 1, 1, 2, 20))
            data[at:end] = chance.choice([b"", bytes([chance.randrange(256)]), data[at:end] * 2, *special])
        try:
            found, allowed = run([bytes(data)]), lenient_meaning(bytes(data))
        except Unknown:
            continue
        assert found.requests == allowed.requests[:len(found.requests)], bytes(data)
        assert found.closes or found == allowed, bytes(data)


# ---------------------------------------------------------------------- programs

class Effects(NamedTuple):
    """The effects of requests on a server."""

    topics: list[str]
    messages: list[bytes]       # of the topic that the case names


def effects_of(requests: list[Seen], topic: str, publishes: bool) -> Effects:
    """The effects if they are executed. publishes: by nsqd, not by nsqlookupd."""
    topics, messages = set(), []
    for seen in requests:
        target = urlsplit(seen.target.decode("latin-1").replace("#", "%23"))
        name = parse_qs(target.query).get("topic", [""])[0]
        if seen.method == b"POST" and re.fullmatch("[a-z0-9]+", name):
            if target.path == "/topic/create":
                topics.add(name)
            elif target.path == "/pub" and seen.body and publishes:
                topics.add(name)
                messages += [seen.body] if name == topic else []
    return Effects(sorted(topics), messages)


def statuses_of(sock: socket.socket, data: bytes, most: int) -> list[int]:
    """Sends all of data, and nothing else; returns the statuses of all answers. TLS cannot half-close: over TLS,
    reading stops after this many answers."""
    sock.settimeout(DEADLINE_S)
    received = b""
    statuses: list[bytes] = []
    secure = isinstance(sock, ssl.SSLSocket)
    with contextlib.suppress(OSError):      # refused, and closed, before everything was sent
        sock.sendall(data)
        if not secure:
            sock.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while not (secure and len(statuses) >= most) and (more := sock.recv(1 << 16)):
            received += more
            statuses = re.findall(rb"HTTP/1\.[01] ([2-5]\d\d) ", received)
    return [int(status) for status in statuses]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A daemon with HTTP and HTTPS."""
    folder = tmp_path_factory.mktemp("smuggling")
    self_signed(folder, "server", "localhost")
    daemon = HttpDaemon(folder / "data", f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")
    yield daemon
    assert "panic" not in daemon.log
    assert daemon.stop() == 0


class Nsqd:
    """The daemon, as the cases observe it."""

    publishes = True

    def __init__(self, node: HttpDaemon) -> None:
        self.node = node

    def connect(self) -> Wire:
        return self.node.wire()

    def effects(self, names: list[str]) -> Effects:
        topics = {topic["topic_name"] for topic in self.node.stats()["topics"]} & set(names)
        messages = []
        if names[0] in topics:
            page = self.node.call("GET", f"/topic/peek?topic={names[0]}").json
            messages = [message["body"].encode() for message in page["messages"]]
        return Effects(sorted(topics), messages)


class SecureNsqd(Nsqd):
    """The same over TLS."""

    def __init__(self, node: HttpDaemon) -> None:
        super().__init__(node)
        self.port = int(node.wait_for(r"HTTPS: listening on \S+:(\d+)")[1])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def connect(self) -> Wire:
        return Wire(self.context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)))


class Nsqlookupd:
    """The lookup server."""

    publishes = False

    def __init__(self, server: LookupServer) -> None:
        self.server = server

    def connect(self) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.server.http_port), DEADLINE_S))

    def effects(self, names: list[str]) -> Effects:
        with self.connect() as wire:
            wire.request("GET", "/topics")
            return Effects(sorted(set(wire.reply().json["topics"]) & set(names)), [])


def check_all(server: Nsqd | Nsqlookupd, prefix: str) -> None:
    """Sends each case to a server twice, with its own topics: the second time, heads are remembered."""
    for number, (name, data) in enumerate(CASES.items()):
        names = [f"{prefix}{number:03}a", f"{prefix}{number:03}b"]
        data = data.replace(b"TOPIC", names[0].encode()).replace(b"HIDDN", names[1].encode())
        allowed = (lenient_meaning if name in LIKE_GO else meaning)(data).requests
        executed, closes = run([data])
        if not server.publishes and b"100-continue" in data:
            executed, closes = executed[:1], True       # /pub is no route there, so this body is not awaited
        assert executed == allowed[:len(executed)], name
        for _ in range(2):
            with server.connect() as wire:
                statuses = statuses_of(wire.sock, data, len(executed) + closes)
            assert len(executed) <= len(statuses) <= len(executed) + 1, (name, statuses)
            assert len(executed) == len(statuses) or statuses[-1] >= 400, (name, statuses)
        expected = effects_of(executed, names[0], server.publishes)
        assert server.effects(names) == expected._replace(messages=expected.messages * 2), name


def test_the_daemon(node):
    check_all(Nsqd(node), "d")


def test_the_daemon_over_tls(node):
    check_all(SecureNsqd(node), "s")


def test_the_lookup_server(tmp_path):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        check_all(Nsqlookupd(server), "l")
        assert "panic" not in server.log
        assert server.stop() == 0
    finally:
        server.close()


# ---------------------------------------------------------------------- clients

@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_an_offer_to_upgrade_is_ignored(server, offer, in_chunks):
    """As sent by the clients of the JDK, Spring and Ktor, and by `curl --http2`."""
    fields = OFFERS[offer].decode()
    topic = f"offer{[*OFFERS].index(offer)}{in_chunks}"
    with server.wire() as wire:
        for path, body in ((f"/pub?topic={topic}", b"one"), (f"/mpub?topic={topic}", b"a\nb\nc"), (f"/pub?topic={topic}&defer=0", b"one"),
                           (f"/pub?topic={topic}", b"one")):
            wire.send(chunked(path, body, headers=fields) if in_chunks else request("POST", path, body, fields))
            assert (wire.reply().body, wire.buffer) == (b"OK", b"")
        wire.request("GET", "/ping", headers=fields)
        assert wire.reply().body == b"OK"
    assert server.stats(topic)["message_count"] == 6


def test_a_remembered_head_is_that_of_one_request(start):
    """The first of two ends with line feeds, so the terminator searched for, CRLF twice, comes at the end of the
    second."""
    server = start()
    first, second = request("POST", "/pub?topic=one", b"1"), request("POST", "/pub?topic=two", b"2")
    with server.wire() as wire:
        for _ in range(3):
            wire.send(first.replace(b"\r\n", b"\n") + second)
            assert [wire.reply().body, wire.reply().body] == [b"OK", b"OK"]
    assert [server.stats(topic)["message_count"] for topic in ("one", "two")] == [3, 3]


def test_trailers_do_not_act_on_the_connection(server):
    with server.wire() as wire:
        for trailer in (b"Connection: close\r\n", CHUNKED, b"Content-Length: 5\r\n", b"Expect: tea\r\nHost: a b\r\n"):
            wire.send(chunked("/pub?topic=trailers", b"hi", trailer=trailer))
            reply = wire.reply()
            assert (reply.body, reply.headers.get("connection")) == (b"OK", None)
        wire.request("GET", "/ping")
        assert wire.reply().body == b"OK"
