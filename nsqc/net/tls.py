"""TLS contexts, and certificates that change while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import ssl
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from nsqc.log import Log
from nsqc.net import certdates

CHECK_S = 2.0  # how often the files are checked for changes
# Below TLS 1.2 OpenSSL's own defaults are useless. Strong suites come first, in the server's order of preference.
OLD_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:AESGCM:AES:!aNULL:!eNULL:!PSK:!SRP:!DSS:@SECLEVEL=0"


class TlsSettings(NamedTuple):
    """File paths, --tls-client-auth-policy, and a version as in the protocol."""

    cert: str
    key: str
    root_ca_file: str
    client_auth_policy: str
    min_version: int


class TlsError(Exception):
    """The settings or their files cannot make a TLS context; the text is one line for the operator."""


def files_of(settings: TlsSettings) -> list[certdates.CertificateFile]:
    """The files with certificates."""
    return [certdates.CertificateFile("--tls-cert", settings.cert),
            certdates.CertificateFile("--tls-root-ca-file", settings.root_ca_file, authorities=True)]


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """Creates the context for server-side handshakes from the files. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        # Old versions are deprecated, but the option may ask for them.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion(settings.min_version)
    if settings.min_version < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers(OLD_CIPHERS)
    for path in (settings.cert, settings.key):
        _check_readable(path)
    try:
        # Without a password OpenSSL would prompt on the terminal.
        context.load_cert_chain(settings.cert, settings.key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"failed to build TLS config - {_blame(settings, error)}") from None
    from nsqc.net import openssl  # here: it imports ctypes, which only TLS needs

    openssl.prefer_light_suites(context)
    _load_authorities(context, settings)
    if settings.client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.client_auth_policy == "require":
        try:
            openssl.accept_any_certificate(context)
        except openssl.UnreachableError:
            raise TlsError("--tls-client-auth-policy=require is not possible with this Python's ssl module") from None
    return context


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsError(f"failed to build TLS config - open {path}: {error.strerror}") from None


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    path = settings.root_ca_file
    if not path:
        if settings.client_auth_policy == "require-verify":
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"failed to build TLS config - {path}: {_reason(error)}") from None


def _blame(settings: TlsSettings, error: Exception) -> str:
    """Names the faulty file and the fault. OpenSSL itself only reports that a file is not PEM."""
    if _reason(error) == "key values mismatch":
        return f"{settings.key} is not the key of {settings.cert}: key values mismatch"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(settings.cert)
    except (ssl.SSLError, OSError):
        return f"{settings.cert} has no readable certificate"
    with open(settings.key, "rb") as file:
        if b"ENCRYPTED" in file.read():
            return f"{settings.key} is encrypted; nsqc cannot ask for its password: store it unencrypted"
    return f"{settings.key} has no readable private key"


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")


# ---------------------------------------------------------------------- certificate reload


# Errno, or modification time, size and inode, of each file.
_Seen = tuple[int | tuple[int, int, int], ...]


class Certificates:
    """The context for the next handshake, and the ends of the certificates. Worker threads read the files;
    inconsistent files are ignored."""

    context: ssl.SSLContext
    dates: list[certdates.CertificateDate]

    def __init__(self, settings: TlsSettings):
        """Raises TlsError."""
        self._settings = settings
        self._files = tuple(path for path in (settings.cert, settings.key, settings.root_ca_file) if path)
        self._seen = self._look()
        self._build()

    def watch(self, loop: asyncio.AbstractEventLoop, workers: Executor, log: Log) -> Callable[[], None]:
        """Starts checking the files for changes; returns a function that stops it."""
        self._loop, self._workers, self._log = loop, workers, log
        self._job: asyncio.Future[None] | None = None
        self._timer = loop.call_later(CHECK_S, self._check)
        self._stop_warning = certdates.warn_daily(loop, log, lambda: self.dates)
        return self.close

    def reload(self) -> None:
        """Reads the files again, changed or not."""
        self._start(True)

    async def settled(self) -> None:
        """Waits for file reads in progress."""
        while self._job is not None and not self._job.done():
            await asyncio.wait([self._job])

    def close(self) -> None:
        """Stops checking."""
        self._timer.cancel()
        self._stop_warning()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        self._start(False)

    def _start(self, always: bool) -> None:
        if self._job is not None and not self._job.done():
            if not always:
                return
            # The current job may have read the old files.
            self._job.add_done_callback(lambda _: self._start(True))
            return
        self._job = self._loop.run_in_executor(self._workers, self._read, always)

    def _read(self, always: bool) -> None:
        """Runs on a worker thread."""
        seen = self._look()
        if seen == self._seen and not always:
            return
        self._seen = seen
        try:
            self._build()
        except TlsError as error:
            self._log.error("TLS: certificates are not reloaded, the old ones stay - %s", error)
        else:
            self._log.info("TLS: certificates reloaded")
            for text in certdates.concerns(self.dates):
                self._log.warn("TLS: %s", text, each=True)

    def _build(self) -> None:
        self.context = build_context(self._settings)
        self.dates = certdates.read_dates(files_of(self._settings))

    def _look(self) -> _Seen:
        seen: list[int | tuple[int, int, int]] = []
        for path in self._files:
            try:
                status = os.stat(path)
            except OSError as error:
                seen.append(error.errno or 0)
            else:
                seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(seen)
