"""Certificates, and client sides of TLS, deflate and snappy."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from pathlib import Path

from nsqc.wire.codecs import Codec, Deflate, Snappy
from tests.support.daemon import Client, Daemon


def openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def self_signed(folder: Path, name: str, common_name: str, days: int = 60) -> None:
    """Writes NAME.pem and NAME.key."""
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), "-subj", f"/CN={common_name}",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")


def signed(folder: Path, name: str, common_name: str) -> None:
    """Writes NAME.pem and NAME.key, signed by the authority ca."""
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={common_name}",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
    openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", "60", "-out", folder / f"{name}.pem")


def make_certificates(folder: Path) -> Path:
    """server and stranger, both self-signed; ca, and client signed by it."""
    self_signed(folder, "server", "localhost")
    self_signed(folder, "stranger", "stranger")
    self_signed(folder, "ca", "authority")
    signed(folder, "client", "client")
    return folder


def client_context(cert: Path | None = None, **more) -> ssl.SSLContext:
    """A client's context, which accepts any server. cert: a path without suffix."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in more.items():
        setattr(context, name, value)
    if cert is not None:
        context.load_cert_chain(f"{cert}.pem", f"{cert}.key")
    return context


class CodedSocket:
    """A socket as Client uses it, through a codec."""

    def __init__(self, sock: socket.socket, codec: Codec):
        self.sock = sock
        self.codec = codec
        self.settimeout, self.close, self.shutdown = sock.settimeout, sock.close, sock.shutdown

    def sendall(self, data: bytes) -> None:
        self.sock.sendall(self.codec.pack(data))

    def recv(self, size: int) -> bytes:
        while True:
            piece = self.codec.get()
            if piece:
                return piece
            data = self.sock.recv(size)
            if not data:
                return b""
            self.codec.put(data)


def identify(client: Client, **wanted) -> dict:
    """The answer to an IDENTIFY with feature negotiation."""
    client.command("IDENTIFY", json.dumps({"feature_negotiation": True, **wanted}).encode())
    kind, data = client.frame()
    assert kind == 0, data
    return json.loads(data)


def compress(client: Client, codec: Codec) -> Client:
    """Switches to the codec that an IDENTIFY has agreed on."""
    # The answer may have arrived together with the following data.
    codec.put(client._kept)
    client._kept = b""
    client.sock = CodedSocket(client.sock, codec)
    assert client.frame() == (0, b"OK")
    return client


def upgrade(client: Client, context: ssl.SSLContext) -> Client:
    """Switches to TLS, which an IDENTIFY has agreed on."""
    client.sock = context.wrap_socket(client.sock)
    assert client.frame() == (0, b"OK")
    return client


def connect(node: Daemon, transport: str, context: ssl.SSLContext | None = None, **wanted) -> Client:
    """A client by transport: plain, tls, deflate, snappy, tls+deflate or tls+snappy."""
    client = node.connect()
    parts = transport.split("+")
    answer = identify(client, tls_v1="tls" in parts, deflate="deflate" in parts, snappy="snappy" in parts, **wanted)
    assert [answer[name] for name in ("tls_v1", "deflate", "snappy")] == [
        name in parts for name in ("tls", "deflate", "snappy")]
    if "tls" in parts:
        upgrade(client, context or client_context())
    if "deflate" in parts:
        compress(client, Deflate(answer["deflate_level"]))
    if "snappy" in parts:
        compress(client, Snappy())
    return client
