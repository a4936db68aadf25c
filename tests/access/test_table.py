"""Every HTTP route and TCP command, by role and transport."""

import json
import re
import socket
import ssl
import struct
from pathlib import Path

import pytest

from nsqc.access.needs import GRANTS, NODE, Need
from nsqc.httpd import router
from nsqc.lookupd import views as lookupd_router
from nsqc.tcp.identify import COMMANDS
from nsqc.wire import parser
from tests.access.files import EVERYTHING, AccessFile
from tests.httpd.conftest import HttpDaemon
from tests.httpd.wire import Wire
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context, connect, identify, make_certificates, self_signed, signed, upgrade

DAEMON = [(method.decode(), path.decode(), route.need) for table in (router.ROUTES, router.FREE_ROUTES) for method, paths in table.items()
          for path, route in paths.items()]
LOOKUP = [(method.decode(), path.decode(), route.need) for method, paths in lookupd_router.ROUTES.items() for path, route in paths.items()]
# One user per grant (all topics, one topic, one channel), one without grants, and everybody else.
ROLES = {grant: {grant: ["*"]} for grant in GRANTS} | {f"{grant}-t": {grant: ["t"]} for grant in GRANTS} | {
    f"{grant}-c": {grant: ["t/c"]} for grant in GRANTS} | {"other": {grant: ["x*", "t/x"] for grant in GRANTS}, "nothing": {}, "root": EVERYTHING}
NOBODY = ""
# These stop the daemon, change its log, or take long.
SLOW = {"/debug/pprof/profile"}


def expected(need: Need, role: str) -> int:
    """401, 403, or 0 if the handler may run. For topic t and channel c."""
    if not need.grants:
        return 0
    if role == NOBODY:
        return 401
    if need.of == "nothing":
        return 0 if ROLES[role] else 403
    for grant in need.grants:
        for scope in ROLES[role].get(grant, ()):
            if (scope == "*" or (need.of != NODE and scope == "t") or (need.of == "channel" and scope == "t/c")
                    or (need.of == "part" and scope.startswith("t/"))):
                return 0
    return 403


def path_of(method: str, path: str) -> str:
    """A path with arguments, chosen so that a permitted call changes as little as possible."""
    if path == "/config/":
        return "/config/log_level"
    return f"{path}?topic=t&channel=c&seconds=nothing&to=nowhere&keep=maybe&rate=x&node=a:1"


def body_of(path: str) -> bytes:
    return {"/pub": b"x", "/mpub": b"x", "/config/": b"info", "/topic/rules": b"{}"}.get(path, b"")


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = make_certificates(tmp_path_factory.mktemp("certs"))
    for role in ROLES:
        signed(folder, role, f"{role}.example")
    return folder


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    file = AccessFile(tmp_path_factory.mktemp("access") / "access.toml")
    for name, grants in ROLES.items():
        file.user(name, certificates=[f"{name}.example"], **grants)
    return file.write()


@pytest.fixture(scope="module")
def plain(access, tmp_path_factory):
    node = HttpDaemon(tmp_path_factory.mktemp("plain") / "data", access.flag, "--audit-level=off")
    yield node
    assert node.stop() == 0


@pytest.fixture(scope="module")
def unix(access, tmp_path_factory):
    node = HttpDaemon(tmp_path_factory.mktemp("unix") / "data", access.flag, unix=True)
    yield node
    assert node.stop() == 0


@pytest.fixture(scope="module")
def tls(access, certs, tmp_path_factory):
    node = HttpDaemon(tmp_path_factory.mktemp("tls") / "data", access.flag, f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key",
                      f"--tls-root-ca-file={certs}/ca.pem", "--tls-client-auth-policy=require-verify")
    yield node
    assert node.stop() == 0


def restore(wire: Wire, header: str) -> None:
    """Undoes the effects of permitted calls."""
    for method, path in (("DELETE", "/drain"), ("POST", "/channel/create?topic=t&channel=c")):
        if path.startswith("/channel"):
            wire.request("POST", "/topic/create?topic=t", b"", header)
            wire.reply()
        wire.request(method, path, b"", header)
        assert wire.reply().status == 200


def walk(wire: Wire, root: str, header: str, role: str, routes=DAEMON) -> None:
    """Calls every route on one connection, with the role's header, and checks the refusals."""
    restore(wire, root)
    for method, path, need in routes:
        if path in SLOW or (path == "/drain" and method == "POST" and expected(need, role) == 0):
            continue
        wire.request(method, path_of(method, path), body_of(path), header)
        reply = wire.reply()
        want = expected(need, role)
        if want:
            assert reply.status == want, (method, path, role, reply)
        else:
            assert reply.status not in (401, 403, 429), (method, path, role, reply)
        if path.endswith("delete"):
            restore(wire, root)


@pytest.mark.parametrize("role", [NOBODY, *ROLES])
def test_http(plain, access, role):
    with plain.wire() as wire:
        walk(wire, access.bearer("root"), access.bearer(role), role)
    if role:
        with plain.wire() as wire:
            walk(wire, access.bearer("root"), access.basic(role), role)


@pytest.mark.parametrize("role", [NOBODY, "nothing", "publish-t", "root"])
def test_http_over_a_unix_socket(unix, access, role):
    """A local connection grants nothing."""
    with unix.wire() as wire:
        walk(wire, access.bearer("root"), access.bearer(role), role)


def https(node: HttpDaemon, certs, role: str) -> Wire:
    port = int(re.findall(r"HTTPS: listening on \S+:(\d+)", node.log)[-1])
    sock = client_context(certs / role).wrap_socket(socket.create_connection(("127.0.0.1", port), 60))
    return Wire(sock)


@pytest.mark.parametrize("role", ["nothing", "publish-t", "admin-c", "read", "root"])
def test_https_with_a_certificate(tls, access, certs, role):
    with https(tls, certs, role) as wire:
        walk(wire, access.bearer("root"), "", role)


def test_https_without_a_certificate(tls):
    port = int(re.findall(r"HTTPS: listening on \S+:(\d+)", tls.log)[-1])
    sock = socket.create_connection(("127.0.0.1", port), 60)
    with pytest.raises((ssl.SSLError, OSError)):
        secured = client_context().wrap_socket(sock)
        secured.sendall(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not secured.recv(1)
        raise OSError


# ---------------------------------------------------------------------- TCP


def do(client, command: str):
    """The answer to a command for topic t and channel c."""
    if command in ("PUB", "MPUB", "DPUB", "DMPUB"):
        body = b"x" if "MPUB" not in command else b"\0\0\0\1\0\0\0\1x"
        client.command(f"{command} t{' 1' if command.startswith('D') else ''}", body)
    else:
        client.command("SUB t c")
    return client.frame()


def allowed(role: str, command: str) -> bool:
    grant = COMMANDS[command]
    return any(scope in ("*", "t") or (scope == "t/c" and grant == "consume") for scope in ROLES.get(role, {}).get(grant, ()))


@pytest.mark.parametrize("command", ["PUB", "MPUB", "DPUB", "DMPUB", "SUB"])
@pytest.mark.parametrize("role", [NOBODY, *ROLES])
def test_tcp(plain, access, role, command):
    client = plain.connect()
    if command == "DMPUB":
        client.command("IDENTIFY", b'{"feature_negotiation": true, "deferred_batches": true}')
        assert json.loads(client.frame()[1])["deferred_batches"] is True
    if role:
        client.command("AUTH", access.tokens[role].encode())
        kind, data = client.frame()
        assert kind == (0 if ROLES[role] else 1), data
        if not ROLES[role]:
            assert data == b"E_UNAUTHORIZED AUTH no authorizations found"
            return
        assert json.loads(data)["identity"] == role
    answer = do(client, command)
    if allowed(role, command):
        assert answer == (0, b"OK")
    else:
        assert answer[0] == 1
        assert answer[1].startswith(b"E_UNAUTHORIZED AUTH failed for" if role else b"E_AUTH_FIRST AUTH required before")
        assert client.frame() is None
    client.close()


@pytest.mark.parametrize("command", ["PUB", "MPUB", "DPUB", "SUB"])
@pytest.mark.parametrize("role", ["nothing", "publish-t", "consume-c", "read", "root"])
def test_tcp_with_a_certificate(tls, certs, role, command):
    """Without AUTH."""
    client = connect(tls, "tls", client_context(certs / role))
    answer = do(client, command)
    assert (answer == (0, b"OK")) is allowed(role, command), answer
    client.close()


@pytest.mark.parametrize("transport", ["tls", "tls+snappy", "tls+deflate"])
def test_tcp_with_a_certificate_and_a_token(tls, access, certs, transport):
    """Both grant."""
    client = connect(tls, transport, client_context(certs / "publish-t"))
    client.pub("t", b"x")
    client.command("AUTH", access.tokens["consume-c"].encode())
    assert client.frame()[0] == 0
    client.pub("t", b"x")
    client.sub("t", "c")
    client.close()


@pytest.mark.parametrize("transport", ["deflate", "snappy"])
def test_tcp_compressed(plain, access, transport):
    client = connect(plain, transport)
    client.command("AUTH", access.tokens["publish-t"].encode())
    assert client.frame()[0] == 0
    client.pub("t", b"x")
    client.command("PUB u", b"x")
    assert client.frame()[1].startswith(b"E_UNAUTHORIZED")


def test_identify_says_that_auth_is_required(plain):
    assert identify(plain.connect())["auth_required"] is True


def test_unverified_certificates_prove_nothing(access, certs, start):
    """With tls-client-auth-policy=require, clients may present self-signed certificates."""
    self_signed(certs, "forged", "root.example")
    node = start(access.flag, f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--tls-client-auth-policy=require")
    client = node.connect()
    assert identify(client, tls_v1=True)["tls_v1"]
    upgrade(client, client_context(certs / "forged"))
    assert do(client, "PUB")[1].startswith(b"E_AUTH_FIRST")
    with https(node, certs, "forged") as wire:
        wire.request("GET", "/stats")
        assert wire.reply().status == 401
    node.wait_for("WARNING: ACCESS: certificates in .* are ignored")


def test_every_command_says_what_it_requires():
    """Covers all names that the parser knows."""
    known = set(re.findall(r"^ +CMD_(\w+)", (Path(parser.__file__).parent / "parser.pxd").read_text(), re.MULTILINE)) - {"UNKNOWN"}
    assert set(COMMANDS) == known
    assert {command for command, grant in COMMANDS.items() if grant == "publish"} == {"PUB", "MPUB", "DPUB", "DMPUB", "DEAD"}


# ---------------------------------------------------------------------- the lookup server


@pytest.fixture(scope="module")
def lookupd(access, tmp_path_factory):
    server = LookupServer(tmp_path_factory.mktemp("lookupd") / "lookupd.log", access.flag, "--audit-level=off")
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("role", [NOBODY, *ROLES])
def test_lookupd(lookupd, access, role):
    with Wire(socket.create_connection(("127.0.0.1", lookupd.http_port), 60)) as wire:
        for method, path, need in LOOKUP:
            if path in SLOW:
                continue
            wire.request(method, path_of(method, path), b"", access.bearer(role))
            reply = wire.reply()
            want = expected(need, role)
            assert (reply.status == want) if want else reply.status not in (401, 403), (method, path, role, reply)


@pytest.mark.parametrize("line", [b"PUB t\n\0\x10\0\0", b"DPUB t 10\n\0\x10\0\0", b"MPUB t\n"])
def test_tcp_refuses_strangers_before_their_bodies(plain, line):
    """Otherwise each of them could make the daemon hold a megabyte."""
    client = plain.connect()
    client.send(line)
    assert client.frame()[1].startswith(b"E_AUTH_FIRST AUTH required before")
    client.close()


@pytest.mark.parametrize("command", [b"IDENTIFY", b"AUTH"])
def test_greetings_are_short(plain, command):
    client = plain.connect()
    client.send(command + b"\n" + struct.pack(">i", 65537))
    assert client.frame()[1] == b"E_BAD_BODY " + command + b" body too big 65537 > 65536"
    client.close()


@pytest.mark.parametrize("token", [None, "x", "nsqc_0123456789abcdef_" + "A" * 43])
def test_http_reads_no_bodies_of_strangers(plain, token):
    """A client that waits for permission to send its body gets the refusal instead."""
    headers = {"Expect": "100-continue", "Content-Length": "5000000"} | ({"Authorization": f"Bearer {token}"} if token else {})
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", plain.http_port), WAIT_SECONDS) as sock:
        sock.sendall(f"POST /mpub?topic=t HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode())
        assert sock.recv(4096).startswith(b"HTTP/1.1 401 ")
