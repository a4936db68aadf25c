"""TLS on the TCP port and on HTTPS: versions, policies, failing handshakes, changing certificates."""

import contextlib
import json
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import pytest

from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context, connect, identify, make_certificates, upgrade

WAYS = ("tls", "tls+deflate", "tls+snappy")
MIB = 1024 * 1024


def https_port(node) -> int:
    return int(node.log.rsplit("HTTPS: listening on ", 1)[1].split()[0].rsplit(":", 1)[1])


def s_client(port: int, *flags: str, send: bytes = b"GET /ping HTTP/1.0\r\n\r\n") -> str:
    """The output of openssl s_client."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-ign_eof", *flags], input=send,
                          capture_output=True, timeout=WAIT_SECONDS)
    return (done.stdout + done.stderr).decode(errors="replace")


# ---------------------------------------------------------------------- use


@pytest.mark.parametrize("way", WAYS)
def test_messages_of_all_sizes_both_ways(secure, way):
    node = secure()
    sender, taker = connect(node, way), connect(node, way).sub("t", "c", 100)
    bodies = [b"x", bytes(70_000), b"hello " * 100_000, bytes(MIB)]
    for body in bodies:
        sender.pub("t", body)
    sender.pub("t", *[b"m%d" % n for n in range(1000)])
    found = [message.body for message in taker.messages(1004, finish=True)]
    assert sorted(found) == sorted(bodies + [b"m%d" % n for n in range(1000)])
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)


def test_a_consumer_that_does_not_read_blocks_only_itself(secure):
    node = secure("--mem-queue-size=100000")
    slow = connect(node, "tls", heartbeat_interval=60_000).sub("t", "slow", 2500)
    quick = connect(node, "tls").sub("t", "quick", 100)
    publisher = node.connect()
    before = node.rss()
    body = bytes(100_000)
    for _ in range(400):
        publisher.pub("t", body)
        quick.messages(1, finish=True)
    # Unread messages stay in the channel, unshared: 40 MB, and not a second time in buffers.
    assert node.channel("t", "slow")["depth"] > 200
    assert node.rss() - before < 60 * MIB
    assert len(slow.messages(400, finish=True)) == 400


def test_versions_and_suites_in_the_statistics(secure):
    node = secure()
    for version, shown in ((ssl.TLSVersion.TLSv1_2, "TLS1.2"), (ssl.TLSVersion.TLSv1_3, "TLS1.3")):
        context = client_context(maximum_version=version)
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        client = connect(node, "tls", context).sub("t", "c")
        found = node.channel("t", "c")["clients"][0]
        suite = found["tls_cipher_suite"]
        assert found["tls"] is True
        assert found["tls_version"] == shown
        assert suite == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" if shown == "TLS1.2" else suite == "Unknown 4865"
        client.close()
        wait_until(lambda: not node.channel("t", "c")["clients"])


def test_closing_ends_tls_properly(secure):
    node = secure()
    client = connect(node, "tls")
    client.command("BOGUS")
    assert client.frame() == (1, b"E_INVALID invalid command BOGUS")
    assert client.sock.recv(10) == b""      # an end that TLS knows of; ssl raises otherwise
    other = connect(node, "tls")
    assert node.stop() == 0
    assert other.sock.recv(10) == b""


def test_what_stands_behind_identify_in_the_clear_counts_for_nothing(secure):
    node = secure()
    client = node.connect()
    body = b'{"feature_negotiation": true, "tls_v1": true}'
    client.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body + b"PUB t\n\x00\x00\x00\x01x")
    assert json.loads(client.frame()[1])["tls_v1"] is True
    upgrade(client, client_context())
    client.ok("SUB u c")
    assert "t" not in [topic["topic_name"] for topic in node.stats()["topics"]]


def test_twice_is_refused(secure):
    client = connect(secure(), "tls")
    client.command("IDENTIFY", b'{"feature_negotiation": true, "tls_v1": true}')
    assert client.frame() == (1, b"E_IDENTIFY_FAILED IDENTIFY failed connection is upgraded already")


# ---------------------------------------------------------------------- versions and policies, as openssl sees them


@pytest.mark.parametrize("least,refused,taken", [
    ("tls1.0", (), ("-tls1", "-tls1_1", "-tls1_2", "-tls1_3")),
    ("tls1.2", ("-tls1", "-tls1_1"), ("-tls1_2", "-tls1_3")),
    ("tls1.3", ("-tls1_2",), ("-tls1_3",)),
])
def test_versions(secure, least, refused, taken):
    port = https_port(secure(f"--tls-min-version={least}"))
    for flag in taken:
        assert "200 OK" in s_client(port, flag, "-cipher", "ALL:@SECLEVEL=0"), flag
    for flag in refused:
        assert "200 OK" not in s_client(port, flag, "-cipher", "ALL:@SECLEVEL=0")


@pytest.mark.parametrize("flag", ["-tls1_2", "-tls1_3"])
def test_client_certificates(secure, certs, flag):
    def answered(port, *more):
        return "200 OK" in s_client(port, flag, *more)

    def cert(name):
        return ("-cert", f"{certs}/{name}.pem", "-key", f"{certs}/{name}.key")

    required = https_port(secure("--tls-client-auth-policy=require"))
    assert not answered(required)
    assert answered(required, *cert("stranger"))
    assert answered(required, *cert("client"))
    verified = https_port(secure("--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={certs}/ca.pem"))
    assert not answered(verified)
    assert not answered(verified, *cert("stranger"))
    assert answered(verified, *cert("client"))


def test_any_certificate_still_needs_its_key(secure, certs, tmp_path):
    """Under require, a certificate presented without its key counts for nothing."""
    node = secure("--tls-client-auth-policy=require")
    context = client_context(certs / "stranger")
    client = connect(node, "tls", context)
    client.ok("SUB t c")
    (tmp_path / "mixed.pem").write_bytes((certs / "client.pem").read_bytes())
    (tmp_path / "mixed.key").write_bytes((certs / "stranger.key").read_bytes())
    with pytest.raises(ssl.SSLError):
        client_context(tmp_path / "mixed")


@pytest.mark.parametrize("flags,text", [
    (["--tls-cert={certs}/none.pem", "--tls-key={certs}/server.key"], "open {certs}/none.pem: No such file or directory"),
    (["--tls-key={certs}/server.key"], "failed to build TLS config - --tls-key is given without --tls-cert"),
    (["--tls-cert={certs}/server.pem"], "failed to build TLS config - --tls-cert is given without --tls-key"),
    (["--tls-cert={certs}/server.pem", "--tls-key={certs}/client.key"], "key values mismatch"),
    (["--tls-required=true"], "cannot require TLS client connections without TLS key and cert"),
    (["--tls-client-auth-policy=require"], "cannot require TLS client connections without TLS key and cert"),
    (["--tls-client-auth-policy=requrie"], "is require or require-verify, not requrie"),
])
def test_bad_settings_are_told_in_a_line(daemon, certs, flags, text):
    with pytest.raises(AssertionError, match="the daemon left with 1") as left:
        daemon(*[flag.format(certs=certs) for flag in flags])
    assert text.format(certs=certs) in str(left.value)


# ---------------------------------------------------------------------- failing handshakes


def test_stalled_handshakes_end_at_their_deadline_and_take_little_memory(secure):
    node = secure()
    before = node.rss()
    stalled = []
    began = time.monotonic()
    for _ in range(50):
        client = node.connect()
        identify(client, tls_v1=True)
        client.send(b"\x16\x03\x01\x02\x00\x01")
        stalled.append(client)
    stalled += [socket.create_connection(("127.0.0.1", https_port(node))) for _ in range(50)]
    connect(node, "tls").ok("SUB t c")
    assert node.rss() - before < 40 * MIB
    for one in stalled:
        one = getattr(one, "sock", one)
        one.settimeout(WAIT_SECONDS)
        assert one.recv(1000) == b""
    assert time.monotonic() - began > 3
    wait_until(lambda: len(node.descriptors()) < 60)


@pytest.mark.parametrize("data", [b"PUB t\n\x00\x00\x00\x01x", b"\x16\x03\x01\xff\xff" + bytes(200), bytes(100_000)])
def test_garbage_in_place_of_a_handshake(secure, data):
    node = secure()
    client = node.connect()
    identify(client, tls_v1=True)
    client.send(data)
    client.sock.settimeout(WAIT_SECONDS)
    while True:
        try:
            if not client.sock.recv(1000):
                break
        except ConnectionError:
            break
    wait_until(lambda: "E_IDENTIFY_FAILED IDENTIFY failed TLS handshake - " in node.log)
    connect(node, "tls").ok("SUB t c")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_refuses_the_certificate(secure, version):
    node = secure()
    context = ssl.create_default_context()
    context.maximum_version = version
    client = node.connect()
    identify(client, tls_v1=True)
    for sock in (client.sock, socket.create_connection(("127.0.0.1", https_port(node)))):
        with pytest.raises(ssl.SSLCertVerificationError), sock:
            context.wrap_socket(sock, server_hostname="localhost")
    told = "the client ended it: unknown ca"
    wait_until(lambda: node.log.count(told) == 2 and "connection closed" in node.log)
    connect(node, "tls").ok("SUB t c")
    assert node.stop() == 0
    errors = [line for line in node.log.splitlines() if " ERROR: " in line or "Error" in line]
    assert len(errors) == 2
    assert f"E_IDENTIFY_FAILED IDENTIFY failed TLS handshake - {told}" in errors[0]
    assert f"HTTPS: TLS handshake error from 127.0.0.1 - {told}" in errors[1]


def test_a_client_that_leaves_amid_the_handshake(secure):
    node = secure()
    for _ in range(20):
        client = node.connect()
        identify(client, tls_v1=True)
        client.send(b"\x16\x03\x01")
        client.close()
    wait_until(lambda: node.log.count("connection closed") >= 20)
    connect(node, "tls").ok("SUB t c")


def test_garbage_within_tls_closes_that_connection(secure):
    node = secure()
    client = connect(node, "tls")
    socket.socket.send(client.sock, b"\x17\x03\x03\x00\x20" + bytes(32))
    client.sock.settimeout(WAIT_SECONDS)
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        assert client.sock.recv(10) == b""
    connect(node, "tls").ok("SUB t c")


def test_a_stop_amid_handshakes(secure):
    node = secure()
    client = node.connect()
    identify(client, tls_v1=True)
    web = socket.create_connection(("127.0.0.1", https_port(node)))
    time.sleep(0.2)
    assert node.stop() == 0
    assert "Traceback" not in node.log
    client.close()
    web.close()


# ---------------------------------------------------------------------- changing certificates


def served(node) -> bytes:
    """The certificate that HTTPS shows."""
    with (socket.create_connection(("127.0.0.1", https_port(node))) as sock,
          client_context().wrap_socket(sock) as secure):
        return secure.getpeercert(binary_form=True)


@pytest.mark.parametrize("told", [True, False])
def test_new_certificates_are_taken_without_dropping_connections(daemon, tmp_path, told):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        make_certificates(folder)
    node = daemon(f"--tls-cert={old}/server.pem", f"--tls-key={old}/server.key", "--https-address=127.0.0.1:0")
    client = connect(node, "tls").sub("t", "c", 5)
    first = served(node)
    shutil.copy(new / "server.pem", old / "server.pem")
    if told:
        node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificates are not reloaded" in node.log)     # the key is still the old one
    assert served(node) == first
    shutil.copy(new / "server.key", old / "server.key")
    if told:
        node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificates reloaded" in node.log)
    assert served(node) == ssl.PEM_cert_to_DER_cert((new / "server.pem").read_text()) != first
    node.connect().pub("t", b"x")
    assert client.message().body == b"x"
    connect(node, "tls").ok("SUB t d")
