"""Auth servers: queries, the meaning of answers, and failures."""

import json
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.peers.authd import AuthServer, reply
from tests.peers.conftest import factory
from tests.support import nested
from tests.support.daemon import batch, logged, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port
from tests.support.secure import connect

authd = factory(AuthServer)

FAILED = (1, b"E_AUTH_FAILED AUTH failed")
OK = (0, b"OK")
SECRET = b"s3cr&t=\xc3\xa4+ "


def guarded(daemon, *servers, flags=(), **more):
    """A daemon with these auth servers."""
    return daemon(*(f"--auth-http-address={getattr(one, 'address', one)}" for one in servers), *flags, **more)


def login(node, secret=b"secret"):
    """A connection that has authenticated."""
    client = node.connect()
    client.command("AUTH", secret)
    kind, answer = client.frame()
    assert kind == 0, answer
    return client


def refused(client, line, body=None):
    """The error that ends the connection."""
    client.command(line, body)
    kind, text = client.frame()
    assert kind == 1, text
    assert client.frame() is None
    return text


# ---------------------------------------------------------------------- queries


def test_get_carries_the_facts_in_a_query(daemon, authd):
    server = authd()
    client = guarded(daemon, server).connect()
    client.command("AUTH", SECRET)
    kind, answer = client.frame()
    assert kind == 0
    assert json.loads(answer) == {"identity": "me", "identity_url": "http://id/?a=1&b=<2>", "permission_count": 1}
    asked = server.asked[0]
    assert asked[:2] == ("GET", "/auth")
    assert list(asked.facts.items()) == [
        ("common_name", ""), ("remote_ip", "127.0.0.1"), ("secret", SECRET.decode()), ("tls", "false")]
    assert asked.headers["accept"] == "application/vnd.nsq; version=1.0"
    assert asked.headers["host"] == server.address


def test_post_carries_them_in_json(daemon, authd):
    server = authd()
    node = guarded(daemon, f"http://{server.address}/who?x=1", flags=["--auth-http-request-method=post"])
    login(node, SECRET)
    asked = server.asked[0]
    assert asked[:2] == ("POST", "/who?x=1")
    assert asked.facts == {"common_name": "", "remote_ip": "127.0.0.1", "secret": SECRET.decode(), "tls": "false"}
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize("address, path, facts", [
    ("http://{}", "/", {}), ("http://{}/a/b", "/a/b", {}), ("http://{}/a?x=1", "/a", {"x": "1"}), ("http://{}/ä b", "/%C3%A4%20b", {}),
])
def test_addresses_may_be_urls(daemon, authd, address, path, facts):
    server = authd()
    login(guarded(daemon, address.format(server.address)))
    assert server.asked[0].path == path
    assert server.asked[0].facts.items() >= {**facts, "secret": "secret"}.items()


def test_a_login_in_the_url_is_sent_but_not_logged(daemon, authd):
    server = authd(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
    node = guarded(daemon, f"http://us%40er:pass@{server.address}/auth")
    assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]
    assert server.asked[0].headers["authorization"] == "Basic dXNAZXI6cGFzcw=="      # us@er:pass
    assert server.asked[0].headers["host"] == server.address
    logged(node, "failed to auth against")
    assert "pass" not in node.log


@pytest.mark.parametrize("address", ["ftp://h/", "http://", "h:port", "http://h:99999/", "http:/h/auth",
                                     "https//h", "http://a b/", "http://[::1"])
def test_an_address_that_is_none_keeps_the_daemon_from_starting(tmp_path, address):
    done = subprocess.run([sys.executable, "-m", "nsqc", "serve", f"--data-path={tmp_path}", "--tcp-address=127.0.0.1:0",
                           "--http-address=127.0.0.1:0", f"--auth-http-address={address}"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 1
    assert f"--auth-http-address: {address!r} is neither HOST:PORT nor an http or https URL" in done.stderr


def test_a_unix_socket_has_no_address(daemon, authd):
    server = authd()
    login(guarded(daemon, server, unix=True))
    assert server.asked[0].facts["remote_ip"] == ""


def test_an_ipv4_client_of_a_socket_for_both_families_has_its_ipv4_address(daemon, authd):
    server = authd()
    node = guarded(daemon, server, flags=["--tcp-address=0.0.0.0:0"])
    client = login(node).sub("t", "c")
    assert server.asked[0].facts["remote_ip"] == "127.0.0.1"
    assert node.channel("t", "c")["clients"][0]["remote_address"].startswith("127.0.0.1:")
    client.close()


def test_other_bytes_than_text_may_be_a_secret(daemon, authd):
    server = authd()
    login(guarded(daemon, server), b"\xff\x00")
    assert server.asked[0].facts["secret"] == "\ufffd\0"


def test_a_huge_secret_bothers_no_server(daemon, authd):
    server = authd()
    node = guarded(daemon, server)
    assert refused(node.connect(), "AUTH", b"x" * 65537) == b"E_BAD_BODY AUTH body too big 65537 > 65536"
    assert server.asked == []
    login(node, b"x" * 65536)
    assert server.asked[0].facts["secret"] == "x" * 65536


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=auth", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", path.with_suffix(".crt")], check=True,
                   capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def trusting(certificate):
    """The command of a daemon that trusts this certificate as the system's authority."""
    return {"command": ("env", f"SSL_CERT_FILE={certificate}", sys.executable, "-m", "nsqc", "serve")}


def test_https(daemon, authd, certificate):
    server = authd(tls=certificate)
    login(guarded(daemon, f"https://{server.address}/auth", **trusting(certificate)))
    assert server.asked[0].facts["secret"] == "secret"


def test_an_unknown_certificate_is_not_trusted(daemon, authd, certificate):
    server = authd(tls=certificate)
    node = guarded(daemon, f"https://{server.address}/auth")
    assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]
    assert server.asked == []
    logged(node, "certificate verify failed: self-signed certificate; give the authority of its certificate by --tls-root-ca-file")


def test_a_server_may_send_to_its_https_port(daemon, authd, certificate):
    safe = authd(tls=certificate)
    body = json.dumps({"message": "TLS_REQUIRED", "https_port": safe.port}).encode()
    plain = authd(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    node = guarded(daemon, plain, **trusting(certificate))
    login(node)
    assert safe.asked[0].facts == plain.asked[0].facts
    # Later secrets are not sent in clear text first.
    login(node)
    assert (len(safe.asked), len(plain.asked)) == (2, 1)


def test_a_server_may_not_send_from_https_to_http(daemon, authd, certificate):
    plain = authd()
    safe = authd(f"HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:{plain.port}/auth\r\nContent-Length: 0\r\n\r\n".encode(), tls=certificate)
    node = guarded(daemon, f"https://{safe.address}/auth", **trusting(certificate))
    assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]
    logged(node, "redirects from https to http://")
    assert plain.asked == []


@pytest.fixture(scope="module")
def named_certificate(tmp_path_factory):
    """The certificate of a client."""
    path = tmp_path_factory.mktemp("client") / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a client",
                    "-keyout", path, "-out", path.with_suffix(".crt")], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.mark.parametrize("policy", ["", "require", "require-verify"])
def test_clients_with_tls(daemon, authd, certificate, named_certificate, policy):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, flags=[f"--tls-cert={certificate}", f"--tls-key={certificate}",
                                          f"--tls-root-ca-file={named_certificate}", f"--tls-client-auth-policy={policy}"])
    client = node.connect()
    client.command("IDENTIFY", b'{"tls_v1": true, "feature_negotiation": true}')
    assert json.loads(client.frame()[1])["tls_v1"] is True
    context = ssl.create_default_context(cafile=certificate)
    if policy:
        context.load_cert_chain(named_certificate)
    client.sock = context.wrap_socket(client.sock, server_hostname="127.0.0.1")
    assert client.frame() == OK
    client.command("AUTH", b"secret")
    assert client.frame()[0] == 0
    assert server.asked[0].facts["tls"] == "true"
    assert server.asked[0].facts["common_name"] == ("a client" if policy else "")
    client.pub("t", b"x")
    expire()
    # Larger than one read, after a command that waits.
    client.send((b"PUB t\n\0\0\4\0" + b"y" * 1024) * 2000)
    for _ in range(2000):
        assert client.frame() == OK
    assert len(server.asked) == 2


@pytest.mark.parametrize("way", ["deflate", "snappy", "tls+snappy"])
def test_clients_with_compression(daemon, authd, certificate, way):
    """A command that waits within a compressed stream, followed by more than one decoding step handles."""
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, flags=[f"--tls-cert={certificate}", f"--tls-key={certificate}"])
    client = connect(node, way)
    publishes = (b"PUB t\n\0\0\4\0" + b"y" * 1024) * 2000
    server.gate.clear()
    sending = threading.Thread(target=client.send, args=(b"AUTH\n\0\0\0\6secret" + publishes,))
    sending.start()
    wait_until(lambda: server.asked)
    server.gate.set()
    assert client.frame()[0] == 0
    for _ in range(2000):
        assert client.frame() == OK
    sending.join()
    expire()
    sending = threading.Thread(target=client.send, args=(publishes,))
    sending.start()
    for _ in range(2000):
        assert client.frame() == OK
    sending.join()
    assert len(server.asked) == 2
    assert node.stats("t")["message_count"] == 4000


# ---------------------------------------------------------------------- answers


def raw(status, body=b"", *headers):
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", body])


@pytest.mark.parametrize("answer", [
    b"[]", b"null", b"{", b"\xff", nested.ARRAYS, nested.OBJECT, raw(b"403 No", nested.OBJECT), reply(ttl=0), reply(ttl=-1), reply(ttl="60"), reply(identity=5), reply(authorizations={}),
    reply(authorizations=[{"topic": "(?=a)", "channels": [".*"], "permissions": []}]),
    reply(authorizations=[{"topic": "a", "channels": [".*", r"\1"], "permissions": []}]),
    reply(authorizations=[{"topic": "a", "channels": [], "permissions": ["dance"]}]),
    reply(authorizations=[5]), raw(b"404 No", reply()), raw(b"201 Made", reply()), raw(b"403 No", b"[]"), raw(b"500 No"),
    raw(b"403 No", b'{"https_port": true}'), raw(b"302 There", b"", b"Location: ftp://there/"), raw(b"302 There"),
    b"no HTTP at all", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (5 << 20), b"HTTP/1.1 ",
])
def test_bad_answers(daemon, authd, answer):
    node = guarded(daemon, authd(answer))
    assert refused(node.connect(), "AUTH", b"hush-hush") == FAILED[1]
    logged(node, "AUTH failed failed to auth against http://127.0.0.1")
    assert "hush" not in node.log


def test_fields_may_be_missing_or_null_or_in_capitals(daemon, authd):
    server = authd(json.dumps({"TTL": 60, "identity": None, "extra": 1, "Authorizations": [
        {"Topic": None, "Channels": [""], "Permissions": ["publish"]},
        {"topic": "x", "channels": None, "permissions": None}]}).encode())
    node = guarded(daemon, server)
    client = node.connect()
    client.command("AUTH", b"secret")
    assert json.loads(client.frame()[1]) == {"identity": "", "identity_url": "", "permission_count": 2}
    client.pub("any", b"x")
    entry = node.stats()["producers"][0]
    assert entry["authed"] is True
    assert "auth_identity" not in entry and "auth_identity_url" not in entry


@pytest.mark.parametrize("count", [300, 400, 500, 700, 900])
def test_unknown_fields_may_be_nested_as_deeply_as_the_parser_goes(daemon, authd, count):
    """Only the parser inspects them: the answer counts, or is refused as a whole."""
    node = guarded(daemon, authd(b'{"ttl": 60, "x": %b, "authorizations": [{"y": %b}]}' % (nested.levels(count),
                                                                                       nested.levels(count))))
    login(node)


def test_a_redirection_is_followed(daemon, authd):
    there = authd()
    here = authd(raw(b"302 There", b"", f"Location: http://{there.address}/else?y=1".encode()))
    login(guarded(daemon, here))
    assert there.asked[0][:3] == ("GET", "/else", {"y": "1"})
    # A 307 keeps the method and the body.
    here.answer = raw(b"307 There", b"", f"Location: http://{there.address}/post".encode())
    login(guarded(daemon, here, flags=["--auth-http-request-method=post"]))
    assert there.asked[1][:2] == ("POST", "/post")
    assert there.asked[1].facts["secret"] == "secret"


def test_redirections_in_a_circle_end(daemon, authd):
    server = authd()
    server.answer = raw(b"302 There", b"", b"Location: /again")
    assert refused(guarded(daemon, server).connect(), "AUTH", b"secret") == FAILED[1]
    assert len(server.asked) == 10


RULES = [
    {"topic": "^mine$", "channels": ["^c[0-9]$", ""], "permissions": ["publish"]},
    {"topic": "^mine$", "channels": ["^c[0-9]$"], "permissions": ["subscribe"]},
    {"topic": "part", "channels": ["ch"], "permissions": ["subscribe", "publish"]},
    {"topic": "all", "channels": [".*"], "permissions": ["subscribe", "publish"]},
    {"topic": "nothing", "channels": [], "permissions": ["subscribe", "publish"]},
    {"topic": "none", "channels": [".*"], "permissions": []},
]


@pytest.mark.parametrize("anchored", [False, True])
def test_what_is_allowed(daemon, authd, anchored):
    node = guarded(daemon, authd(reply(authorizations=RULES)), flags=[f"--auth-anchored={str(anchored).lower()}"])
    # topic, channel ("" to publish), unanchored, anchored
    cases = [
        ("mine", "", True, True), ("mine", "c1", True, True), ("mine", "c", False, False), ("mine2", "", False, False),
        # To publish, a channel's expression must match the empty name.
        ("part", "", False, False), ("part", "ch", True, True), ("a.part", "my-ch", True, False), ("part", "c", False, False),
        ("all", "", True, True), ("all", "any", True, True), ("all-of-it", "", True, False), ("overall", "c", True, False),
        ("nothing", "", False, False), ("nothing", "c", False, False), ("none", "", False, False), ("none", "c", False, False),
        ("all#ephemeral", "", True, False),
    ]
    for topic, channel, loosely, strictly in cases:
        client = login(node)
        client.command(*((f"SUB {topic} {channel}",) if channel else (f"PUB {topic}", b"x")))
        name = "SUB" if channel else "PUB"
        wanted = OK if (strictly if anchored else loosely) else (
            1, f'E_UNAUTHORIZED AUTH failed for {name} on "{topic}" "{channel}"'.encode())
        assert client.frame() == wanted, (topic, channel)
        client.close()
    # Refused commands had no effect.
    names = {topic["topic_name"] for topic in node.stats()["topics"]}
    assert names == {topic for topic, _, loosely, strictly in cases if (strictly if anchored else loosely)}


def test_the_http_api_stays_open(daemon, authd):
    """Like nsqd's (conformance, auth/first)."""
    server = authd(reply(authorizations=[]))
    node = guarded(daemon, server)
    for call in ("topic/create?topic=t", "channel/create?topic=t&channel=c", "topic/empty?topic=t", "topic/delete?topic=t"):
        node.post(f"/{call}")
    node.post("/pub?topic=t", b"x")
    assert node.stats("t")["message_count"] == 1
    assert server.asked == []


def test_every_publish_to_another_topic_is_checked(daemon, authd):
    server = authd(reply(authorizations=[{"topic": "^[ab]$", "channels": [".*"], "permissions": ["publish"]}]))
    node = guarded(daemon, server)
    client = login(node)
    for topic in "abbaab":
        client.pub(topic, b"1")
        client.pub(topic, b"2", b"3")
        client.ok(f"DPUB {topic} 1", b"4")
    assert refused(client, "PUB c", b"x") == b'E_UNAUTHORIZED AUTH failed for PUB on "c" ""'
    assert len(server.asked) == 1
    assert node.stats("a")["message_count"] == node.stats("b")["message_count"] == 12
    for line, body in (("MPUB c", batch(b"x")), ("DPUB c 1", b"x")):
        assert refused(login(node), line, body).startswith(b"E_UNAUTHORIZED AUTH failed for " + line[:4].encode())


def test_a_topic_deleted_meanwhile_is_checked_again(daemon, authd):
    node = guarded(daemon, authd())
    client = login(node)
    client.pub("t", b"x")
    node.post("/topic/delete?topic=t")
    client.pub("t", b"y")
    assert node.stats("t")["message_count"] == 1


def test_auth_first(daemon, authd):
    node = guarded(daemon, authd())
    for line, body in (("PUB t", b"x"), ("MPUB t", batch(b"x")), ("DPUB t 1", b"x"), ("SUB t c", None)):
        assert refused(node.connect(), line, body) == f"E_AUTH_FIRST AUTH required before {line.split()[0]}".encode()
    assert node.stats()["topics"] == []


# ---------------------------------------------------------------------- waiting


def test_what_comes_behind_auth_waits_with_it(daemon, authd):
    server = authd()
    server.gate.clear()
    node = guarded(daemon, server)
    client = node.connect()
    # All in one write, larger than one read.
    publishes = b"".join(b"PUB t\n" + len(body).to_bytes(4, "big") + body for body in (b"%06d" % n * 20 for n in range(5000)))
    sender = threading.Thread(target=client.send, args=(b"AUTH\n\0\0\0\6secret" + publishes + b"SUB t c\nRDY 10\n",))
    sender.start()
    wait_until(lambda: server.asked)
    assert client.quiet(0.2)
    server.gate.set()
    sender.join()
    assert json.loads(client.frame()[1])["identity"] == "me"
    for _ in range(5001):
        assert client.frame() == OK
    assert [message.body[:6] for message in client.messages(10)] == [b"%06d" % n for n in range(10)]
    assert len(server.asked) == 1


def test_an_auth_that_comes_in_bytes(daemon, authd):
    client = guarded(daemon, authd()).connect()
    for byte in b"AUTH\n\0\0\0\6secretPUB t\n\0\0\0\1x":
        client.send(bytes([byte]))
        time.sleep(0.001)
    assert client.frame()[0] == 0
    assert client.frame() == OK


def test_others_go_on_while_a_server_hangs(daemon, authd):
    server = authd()
    node = guarded(daemon, server, flags=["--http-client-request-timeout=30s"])
    working = login(node)
    server.answer = None
    hanging = [node.connect(source=f"127.0.1.{number % 10}") for number in range(100)]
    for number, client in enumerate(hanging):
        client.command("AUTH", b"%d" % number)
    wait_until(lambda: server.open == 64)
    for _ in range(200):
        working.pub("t", b"x")
    assert node.http("GET", "/ping")[0] == 200
    # A hundred clients wait, but no server gets a hundred queries at once.
    assert server.most_open <= 65
    for client in hanging:
        client.close()
    assert node.stop() == 0


def test_an_address_with_many_questions_keeps_no_other_waiting(daemon, authd):
    server = authd()
    node = guarded(daemon, server, flags=["--http-client-request-timeout=30s"])
    server.gate.clear()
    greedy = [node.connect() for _ in range(100)]
    for client in greedy:
        client.command("AUTH", b"greedy")
    wait_until(lambda: server.open == 16)
    other = node.connect(source="127.0.0.2")
    other.command("AUTH", b"modest")
    wait_until(lambda: any(asked.facts["secret"] == "modest" for asked in server.asked))
    assert server.most_open == 17
    server.gate.set()
    for client in (*greedy, other):
        assert client.frame()[0] == 0
    assert server.most_open <= 18


def test_a_client_that_waits_longer_than_two_heartbeats_stays(daemon, authd):
    server = authd()
    server.gate.clear()
    node = guarded(daemon, server, flags=["--handshake-timeout=1s"])
    client = node.connect()
    client.ok("IDENTIFY", b'{"heartbeat_interval": 1000}')
    client.send(b"AUTH\n\0\0\0\6secretPUB t\n\0\0")
    beats = 0
    client.sock.settimeout(WAIT_SECONDS)
    while beats < 3:
        assert client.sock.recv(18, socket.MSG_WAITALL)[8:] == b"_heartbeat_"[:10]
        client.sock.recv(1)
        beats += 1
    server.gate.set()
    assert client.frame()[0] == 0
    # The time limit of the next command starts only now.
    client.send(b"\0\1x")
    assert client.frame() == OK


def test_a_client_that_leaves_while_it_waits(daemon, authd):
    server = authd()
    server.gate.clear()
    node = guarded(daemon, server)
    client = node.connect()
    client.send(b"AUTH\n\0\0\0\6secretPUB t\n\0\0\0\1x")
    wait_until(lambda: server.asked)
    client.sock.shutdown(socket.SHUT_WR)
    server.gate.set()
    # Its commands are executed, and answered.
    assert client.frame()[0] == 0
    assert client.frame() == OK
    assert client.frame() is None
    assert node.stats("t")["depth"] == 1


def test_a_client_that_is_gone_while_it_waits_leaves_nothing_behind(daemon, authd):
    server = authd()
    server.gate.clear()
    node = guarded(daemon, server)
    client = node.connect()
    client.command("AUTH", b"secret")
    wait_until(lambda: server.asked)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    server.gate.set()
    wait_until(lambda: "connection closed" in node.log)
    login(node)
    assert "ended" not in node.log and "Traceback" not in node.log


def test_a_stop_waits_for_no_auth_server(daemon, authd):
    node = guarded(daemon, authd(hangs=True), flags=["--http-client-request-timeout=1h"])
    client = node.connect()
    client.command("AUTH", b"secret")
    wait_until(lambda: node.descriptors())
    assert node.stop() == 0
    assert "Traceback" not in node.log


# ---------------------------------------------------------------------- failing servers


def test_fail_over(daemon, authd):
    """The working server is found, whichever is tried first."""
    good = authd()
    bad = [authd(raw(b"500 No")), authd(b"no HTTP"), authd(raw(b"403 No")), authd(nested.OBJECT)]
    node = guarded(daemon, f"127.0.0.1:{free_port()}", *bad, good)
    for number in range(1, 21):
        login(node).close()
        assert len(good.asked) == number
    assert "AUTH failed" not in node.log


def test_all_are_tried_and_named(daemon, authd):
    first, second = authd(raw(b"500 No")), authd(b"{}")
    node = guarded(daemon, first, second)
    assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]
    line = logged(node, "failed to auth against")
    assert f"failed to auth against http://{first.address}/auth - got response 500" in line
    assert f"failed to auth against http://{second.address}/auth - invalid TTL 0 (must be >0)" in line
    assert " WARNING: PROTOCOL(V2): [127.0.0.1:" in line


def test_one_that_hangs_costs_its_time_once(daemon, authd):
    hanging, good = authd(hangs=True), authd()
    node = guarded(daemon, hanging, good, flags=["--http-client-request-timeout=2s"])
    for _ in range(20):
        login(node).close()
    assert len(good.asked) == 20
    assert len(hanging.asked) == 1


def test_any_is_asked(daemon, authd):
    servers = [authd(), authd()]
    node = guarded(daemon, *servers)
    for _ in range(100):
        login(node).close()
        if all(server.asked for server in servers):
            break
    assert all(server.asked for server in servers)


def test_the_request_time_out(daemon, authd):
    for answer in (None, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"):
        server = authd(hangs=True)
        server.answer = answer
        node = guarded(daemon, server, flags=["--http-client-request-timeout=1s"])
        assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]


# ---------------------------------------------------------------------- expiry


def expire():
    """Waits until an answer with a ttl of 1 has expired."""
    time.sleep(1.1)


@pytest.mark.parametrize("line, body", [("PUB t", b"x"), ("MPUB t", batch(b"x", b"y")), ("DPUB t 1", b"x"), ("SUB t c", None)])
def test_an_expired_answer_is_asked_for_anew(daemon, authd, line, body):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server)
    client = login(node, SECRET)
    expire()
    assert len(server.asked) == 1
    server.gate.clear()
    client.command(line, body)
    client.send(b"NOP\nPUB t\n\0\0\0\1z")
    wait_until(lambda: len(server.asked) == 2)
    assert client.quiet(0.1)
    server.gate.set()
    assert client.frame() == OK
    assert client.frame() == OK
    assert server.asked[0].facts == server.asked[1].facts


def test_permissions_may_change_at_expiry(daemon, authd):
    server = authd(reply(ttl=1))
    client = login(guarded(daemon, server))
    client.pub("t", b"x")
    server.answer = reply(ttl=1, authorizations=[{"topic": "^u$", "channels": [".*"], "permissions": ["publish"]}])
    expire()
    client.pub("u", b"x")
    assert refused(client, "PUB t", b"z") == b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'
    assert len(server.asked) == 2


def test_all_permissions_may_go_at_expiry(daemon, authd):
    server = authd(reply(ttl=1))
    client = login(guarded(daemon, server))
    server.answer = reply(authorizations=[])
    expire()
    assert refused(client, "PUB t", b"z") == b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'


def test_a_subscription_outlives_its_answer(daemon, authd):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server)
    client = login(node).sub("t", "c", 1)
    server.close()
    expire()
    node.post("/pub?topic=t", b"x")
    assert client.message().body == b"x"


def test_a_valid_answer_works_without_servers_an_expired_one_does_not(daemon, authd):
    server = authd(reply(ttl=3))
    client = login(guarded(daemon, server))
    server.close()
    client.pub("t", b"x")
    client.pub("u", b"x")
    time.sleep(3.1)
    assert refused(client, "PUB t", b"y") == FAILED[1]


# ---------------------------------------------------------------------- grace


@pytest.mark.parametrize("end", ["close", "hang", "500", "garbage"])
def test_grace_while_all_servers_are_down(daemon, authd, end):
    server = authd(reply(ttl=1, authorizations=[{"topic": "^[tu]$", "channels": [".*"], "permissions": ["publish"]}]))
    node = guarded(daemon, server, f"127.0.0.1:{free_port()}",
                   flags=["--auth-grace=1h", "--http-client-request-timeout=1s"])
    client = login(node)
    client.pub("t", b"x")
    if end == "close":
        server.close()
    else:
        server.answer = {"hang": None, "500": raw(b"503 Later"), "garbage": b"HTTP/9 ?"}[end]
    expire()
    for _ in range(3):
        client.pub("t", b"y")
        client.pub("u", b"y")
    expire()
    client.pub("t", b"z")
    logged(node, "all auth servers are down, the expired answer counts on")
    assert node.log.count("counts on") == 1
    # Forbidden commands are still forbidden.
    assert refused(client, "PUB v", b"z") == b'E_UNAUTHORIZED AUTH failed for PUB on "v" ""'
    # New clients are refused.
    assert refused(node.connect(), "AUTH", b"secret") == FAILED[1]


def test_grace_ends_when_a_server_answers(daemon, authd):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, flags=["--auth-grace=1h"])
    client = login(node)
    server.answer = raw(b"503 Later")
    expire()
    client.pub("t", b"x")
    server.answer = reply(authorizations=[{"topic": "^u$", "channels": [".*"], "permissions": ["publish"]}])
    asked = len(server.asked)
    # Queried in the background, a second later.
    expire()
    client.pub("u", b"x")
    wait_until(lambda: len(server.asked) == asked + 1)

    def denied():
        client.command("PUB t", b"y")
        return client.frame() != OK

    wait_until(denied)
    assert len(server.asked) == asked + 1


def test_grace_ends_when_a_server_refuses(daemon, authd):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, flags=["--auth-grace=1h"])
    client = login(node)
    server.answer = raw(b"503 Later")
    expire()
    client.pub("t", b"x")
    server.answer = raw(b"403 No")
    expire()

    def failed():
        client.command("PUB t", b"y")
        return client.frame() == FAILED

    wait_until(failed)


def test_there_is_no_grace_for_a_refusal(daemon, authd):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, f"127.0.0.1:{free_port()}", flags=["--auth-grace=1h"])
    client = login(node)
    server.answer = raw(b"403 No")
    expire()
    assert refused(client, "PUB t", b"y") == FAILED[1]


def test_grace_runs_out(daemon, authd):
    server = authd(reply(ttl=1))
    node = guarded(daemon, server, flags=["--auth-grace=2s"])
    client = login(node)
    server.close()
    expire()
    client.pub("t", b"x")
    time.sleep(2)
    assert refused(client, "PUB t", b"y") == FAILED[1]


# ---------------------------------------------------------------------- statistics, clients


def test_statistics(daemon, authd):
    node = guarded(daemon, authd())
    producer, consumer, nobody = login(node), login(node), node.connect()
    producer.pub("t", b"x")
    consumer.sub("t", "c")
    for entry in (node.stats()["producers"][0], node.channel("t", "c")["clients"][0]):
        assert entry["authed"] is True
        assert entry["auth_identity"] == "me"
        assert entry["auth_identity_url"] == "http://id/?a=1&b=<2>"
    nobody.close()


def test_statistics_without_auth(daemon):
    node = daemon()
    client = node.connect().sub("t", "c")
    assert not {"authed", "auth_identity", "auth_identity_url"} & node.channel("t", "c")["clients"][0].keys()
    client.close()


def test_unknown_request_methods_are_refused(tmp_path):
    done = subprocess.run([sys.executable, "-m", "nsqc", "serve", f"--data-path={tmp_path}", "--auth-http-request-method=put"],
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode != 0
    assert "--auth-http-request-method must be post or get" in done.stderr


PYNSQ = textwrap.dedent("""
    import sys
    import nsq, tornado.ioloop

    PORT, SECRET = int(sys.argv[1]), sys.argv[2]
    seen = []

    def handler(message):
        seen.append(message.body.decode())
        if len(seen) == 3:
            print(*sorted(seen), flush=True)
            tornado.ioloop.IOLoop.current().stop()
        return True

    def published(conn, data):
        assert data == b"OK", data

    nsq.Reader(topic="greetings", channel="c", nsqd_tcp_addresses=[f"127.0.0.1:{PORT}"], message_handler=handler,
               auth_secret=SECRET)
    writer = nsq.Writer([f"127.0.0.1:{PORT}"], auth_secret=SECRET)

    def publish():
        if not writer.conns:
            tornado.ioloop.IOLoop.current().call_later(0.05, publish)
            return
        writer.pub("greetings", b"a", published)
        writer.mpub("greetings", [b"b", b"c"], published)

    tornado.ioloop.IOLoop.current().add_callback(publish)
    nsq.run()
""")


def test_pynsq(daemon, authd):
    server = authd()
    node = guarded(daemon, server)
    done = subprocess.run([sys.executable, "-c", PYNSQ, str(node.tcp_port), "xyz"], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.split() == ["a", "b", "c"], done.stderr
    assert {asked.facts["secret"] for asked in server.asked} == {"xyz"}
    assert len(server.asked) == 2
