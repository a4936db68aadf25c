"""Certificates made by openssl, and TLS over a connection that is already open."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from kit.base import HOST, Skip


class Certificates:
    """A test authority, a server, a client, and an unsigned client."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.folder: Path | None = None

    def get(self) -> Path:
        with self.lock:
            if self.folder is None:
                if not shutil.which("openssl"):
                    raise Skip("needs the openssl command")
                folder = Path(tempfile.mkdtemp(prefix="conformance-certs-"))
                self._make(folder)
                self.folder = folder
            return self.folder

    def remove(self) -> None:
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _make(folder: Path) -> None:
        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

        def self_signed(name: str) -> None:
            openssl(*["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-keyout"],
                    f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN=conformance-{name}")

        self_signed("ca")
        self_signed("stranger")
        (folder / "names").write_text(f"subjectAltName=IP:{HOST},DNS:localhost\n")
        for name in ("server", "client"):
            openssl(*["req", "-newkey", "rsa:2048", "-nodes", "-keyout"], f"{name}.key",
                    "-out", f"{name}.csr", "-subj", f"/CN=conformance-{name}")
            openssl(*["x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3", "-extfile"],
                    "names", "-in", f"{name}.csr", "-out", f"{name}.pem")


def tls_context(folder: Path, step: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "ca.pem")
    if name := step.get("cert"):
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    if version := step.get("max_version"):
        context.maximum_version = getattr(ssl.TLSVersion, f"TLSv{version.replace('.', '_')}")
    if ciphers := step.get("ciphers"):
        context.set_ciphers(ciphers)
    return context


class TlsLayer:
    def __init__(self, context: ssl.SSLContext):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.broken = False

    def encode(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def decode(self, data: bytes) -> bytes:
        self.incoming.write(data)
        out = bytearray()
        try:
            while piece := self.tls.read(65536):
                out += piece
            self.broken = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.broken = True
        return bytes(out)
