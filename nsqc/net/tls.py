"""TLS contexts from the options, and certificates that change while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import ssl
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from nsqc.options.declared import TLS_NOT_REQUIRED, TLS_REQUIRED, TLS_VERSIONS, Options

CHECK_S = 2.0  # how often the files are looked at
POLICIES = ("", "require", "require-verify")
# Below TLS 1.2 nothing is left of OpenSSL's own choice. Strong suites stand first, and the server's order counts.
OLD_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:AESGCM:AES:!aNULL:!eNULL:!PSK:!SRP:!DSS:@SECLEVEL=0"
MINIMUM = {
    TLS_VERSIONS["tls1.0"]: ssl.TLSVersion.TLSv1,
    TLS_VERSIONS["tls1.1"]: ssl.TLSVersion.TLSv1_1,
    TLS_VERSIONS["tls1.2"]: ssl.TLSVersion.TLSv1_2,
    TLS_VERSIONS["tls1.3"]: ssl.TLSVersion.TLSv1_3,
}


class TlsError(Exception):
    """The options or their files make no TLS context; the text is one line for the operator."""


def is_offered(options: Options) -> bool:
    """Whether a certificate or key is named, as the original asks."""
    return bool(options.tls_cert or options.tls_key)


def settle(options: Options) -> Options:
    """The options with what follows from each other. Raises TlsError."""
    if options.tls_client_auth_policy not in POLICIES:
        raise TlsError(f"--tls-client-auth-policy is require or require-verify, not {options.tls_client_auth_policy}")
    if bool(options.tls_cert) != bool(options.tls_key):
        given, missing = ("--tls-cert", "--tls-key") if options.tls_cert else ("--tls-key", "--tls-cert")
        raise TlsError(f"failed to build TLS config - {given} is given without {missing}")
    if options.tls_client_auth_policy and options.tls_required == TLS_NOT_REQUIRED:
        options = options.replace(tls_required=TLS_REQUIRED)
    if options.tls_required != TLS_NOT_REQUIRED and not is_offered(options):
        raise TlsError("cannot require TLS client connections without TLS key and cert")
    return options


def build_context(options: Options) -> ssl.SSLContext:
    """The context of all server-side handshakes; reads the files. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        # Old versions are offered where the option says so.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = MINIMUM[options.tls_min_version]
    if options.tls_min_version < TLS_VERSIONS["tls1.2"]:
        context.set_ciphers(OLD_CIPHERS)
    for path in (options.tls_cert, options.tls_key):
        _check_readable(path)
    try:
        # Without a password of our own OpenSSL would ask at the terminal.
        context.load_cert_chain(options.tls_cert, options.tls_key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"failed to build TLS config - {_blame(options, error)}") from None
    from nsqc.net import openssl  # with ctypes, for those who offer TLS only

    openssl.prefer_light_suites(context)
    _load_authorities(context, options)
    if options.tls_client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    if options.tls_client_auth_policy == "require":
        try:
            openssl.accept_any_certificate(context)
        except openssl.UnreachableError:
            raise TlsError("--tls-client-auth-policy=require cannot be had with this Python's ssl module") from None
    return context


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsError(f"failed to build TLS config - open {path}: {error.strerror}") from None


def _load_authorities(context: ssl.SSLContext, options: Options) -> None:
    path = options.tls_root_ca_file
    if not path:
        if options.tls_client_auth_policy == "require-verify":
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"failed to build TLS config - {path}: {_reason(error)}") from None


def _blame(options: Options, error: Exception) -> str:
    """Which of the two files is at fault, and how. Of a file that is no PEM, OpenSSL says no more than that."""
    if _reason(error) == "key values mismatch":
        return f"{options.tls_key} is not the key of {options.tls_cert}: key values mismatch"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(options.tls_cert)
    except (ssl.SSLError, OSError):
        return f"{options.tls_cert} has no certificate that can be read"
    with open(options.tls_key, "rb") as file:
        if b"ENCRYPTED" in file.read():
            return f"{options.tls_key} is encrypted, and nobody can be asked for its password"
    return f"{options.tls_key} has no private key that can be read"


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")


# ---------------------------------------------------------------------- certificates that change


class Certificates:
    """The context for the next handshake. Files are read on worker threads; a set that does not fit is not taken."""

    def __init__(self, options: Options):
        """Raises TlsError."""
        self._options = options
        self._files = tuple(path for path in (options.tls_cert, options.tls_key, options.tls_root_ca_file) if path)
        self._seen = self._look()
        self.context = build_context(options)

    def watch(self, loop: asyncio.AbstractEventLoop, workers: Executor, log: Any) -> Callable[[], None]:
        """Looks at the files from now on; returns what stops it."""
        self._loop, self._workers, self._log = loop, workers, log
        self._job: asyncio.Future[None] | None = None
        self._timer = loop.call_later(CHECK_S, self._check)
        return self.close

    def reload(self) -> None:
        """Reads the files anew, whether they seem changed or not."""
        self._start(True)

    async def settled(self) -> None:
        """Returns when no file is being read."""
        while self._job is not None and not self._job.done():
            await asyncio.wait([self._job])

    def close(self) -> None:
        """Looks no more."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        self._start(False)

    def _start(self, always: bool) -> None:
        if self._job is not None and not self._job.done():
            if not always:
                return
            # What runs may have read the old files.
            self._job.add_done_callback(lambda _: self._start(True))
            return
        self._job = self._loop.run_in_executor(self._workers, self._read, always)

    def _read(self, always: bool) -> None:
        """On a worker thread."""
        seen = self._look()
        if seen == self._seen and not always:
            return
        self._seen = seen
        try:
            self.context = build_context(self._options)
        except TlsError as error:
            self._log.error("TLS: certificates are not reloaded, the old ones stay - %s", error)
        else:
            self._log.info("TLS: certificates reloaded")

    def _look(self) -> tuple[Any, ...]:
        found = []
        for path in self._files:
            try:
                status = os.stat(path)
            except OSError as error:
                found.append(error.errno)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)
