"""TLS contexts, and certificates that change while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import NamedTuple

from nsqc.log import Log
from nsqc.net.listener import BACKLOG, ConnectionLimits, ProtocolFactory, handshake_error, host_of

# ====================================================================== certdates
# When certificates end. Their files may have several: a chain is as good as its first certificate to end, a file of
# authorities as its last.

SOON_S = 30 * 86400.0       # before its end, a certificate is a concern
DAILY_S = 86400.0
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _VERSION = 0x30, 0x17, 0xA0     # tags of DER


class CertificateFile(NamedTuple):
    """option: the flag that names the file. authorities: others' certificates."""

    option: str
    path: str
    authorities: bool = False


class CertificateDate(NamedTuple):
    """ends: unix seconds."""

    option: str
    path: str
    ends: float

    def concern(self, now: float) -> str:
        """For the operator, from SOON_S before the end on; empty: no concern."""
        if self.ends - now >= SOON_S:
            return ""
        day = datetime.fromtimestamp(self.ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.option}: {self.path} {'expired' if self.ends <= now else 'expires'} on {day}"


def read_dates(files: Iterable[CertificateFile]) -> list[CertificateDate]:
    """The ends of all files that can be read and have a certificate."""
    dates = []
    for option, path, authorities in files:
        ends = [*_ends_in(path)] if path else []
        if ends:
            dates.append(CertificateDate(option, path, max(ends) if authorities else min(ends)))
    return dates


def concerns(dates: Iterable[CertificateDate]) -> list[str]:
    """The texts about certificates that have ended, or soon will."""
    now = time.time()
    return [text for date in dates if (text := date.concern(now))]


def warn_daily(loop: asyncio.AbstractEventLoop, log: Log, dates: Callable[[], Iterable[CertificateDate]]
               ) -> Callable[[], None]:
    """Logs the concerns, now and every day; returns a function that stops it."""
    timer: asyncio.TimerHandle

    def warn() -> None:
        nonlocal timer
        timer = loop.call_later(DAILY_S, warn)
        for text in concerns(dates()):
            log.warn("TLS: %s", text, each=True)

    warn()
    return lambda: timer.cancel()


def _ends_in(path: str) -> Iterator[float]:
    try:
        with open(path, encoding="latin-1") as file:
            text = file.read()
    except OSError:
        return
    for block in _PEM.findall(text):
        try:
            yield _end_of(ssl.PEM_cert_to_DER_cert(block))
        except (ValueError, IndexError):
            continue    # OpenSSL reports files that it cannot use


def _end_of(der: bytes) -> float:
    """Not-after of a certificate. Raises ValueError, IndexError."""
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    tag, _, following = _element(der, at)
    at = following if tag == _VERSION else at
    for _ in ("serial number", "algorithm", "issuer"):
        _, _, at = _element(der, at)
    tag, validity, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError
    _, _, at = _element(der, validity)      # not before
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the value at an index. Raises IndexError."""
    size, begin = der[at + 1], at + 2
    if size & 0x80:
        begin += size & 0x7F
        size = int.from_bytes(der[at + 2:begin], "big")
    if begin + size > len(der):
        raise IndexError
    return der[at], begin, begin + size


# ====================================================================== peercert
# Reads a client's certificate.

def common_name(certificate: ssl._PeerCertRetDictType) -> str:
    """The subject's common name; empty without one."""
    for attributes in certificate.get("subject", ()):
        for attribute in attributes:
            if isinstance(attribute, tuple) and attribute[0] == "commonName":
                return str(attribute[1])
    return ""


# ====================================================================== tls

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


def files_of(settings: TlsSettings) -> list[CertificateFile]:
    """The files with certificates."""
    return [CertificateFile("--tls-cert", settings.cert),
            CertificateFile("--tls-root-ca-file", settings.root_ca_file, authorities=True)]


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
    reason = _reason(error)
    if reason.endswith(("too weak", "too small")):
        # One rule for all servers: the oldest version that they speak decides.
        return (f"{settings.cert} is too weak for TLS 1.2 and later: {reason}. Use SHA-256 and keys of at least 2048 "
                "bits, also for its authority; --tls-min-version=tls1.0 accepts it")
    if reason == "key values mismatch":
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
    dates: list[CertificateDate]

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
        self._stop_warning = warn_daily(loop, log, lambda: self.dates)
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
            for text in concerns(self.dates):
                self._log.warn("TLS: %s", text, each=True)

    def _build(self) -> None:
        self.context = build_context(self._settings)
        self.dates = read_dates(files_of(self._settings))

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


# ====================================================================== TLS acceptor
# Accepts clients over TLS: counts each, and performs the handshake with the current certificates.

HANDSHAKE_S = 5.0
SHUTDOWN_S = 5.0
ACCEPT_AT_ONCE = 64  # per loop iteration
RETRY_S = 1.0  # when the system has no free descriptors


class TlsAcceptor:
    """Gives clients their protocol once TLS is established. The loop's own server cannot count pending handshakes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket,
                 make_protocol: ProtocolFactory, certificates: Certificates,
                 limits: ConnectionLimits, log: Log, name: str = "HTTPS") -> None:
        """name: of the listener, for the log."""
        self._name = name
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._certificates = certificates
        self._limits = limits
        self._log = log
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._paused = False

    async def start(self) -> None:
        """Starts accepting. Raises OSError."""
        self._sock.listen(BACKLOG)
        self.resume()

    def pause(self) -> None:
        """Stops accepting until resume()."""
        self._paused = True
        self._loop.remove_reader(self._sock)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def resume(self) -> None:
        """Starts accepting again."""
        self._paused = False
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Stops accepting."""
        self.pause()
        self._sock.close()

    async def settle(self, seconds: float) -> None:
        """Waits for pending handshakes, and cancels slow ones."""
        if self._handshakes:
            await asyncio.wait(list(self._handshakes), timeout=seconds)
        for handshake in self._handshakes:
            handshake.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            if self._paused:
                return
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("%s: accept failed - %s", self._name, error)
                self.pause()
                self._retry = self._loop.call_later(RETRY_S, self.resume)
                return
            self._admit(sock, host_of(peer))

    def _admit(self, sock: socket.socket, host: str) -> None:
        if not self._limits.enter(host):
            sock.close()
        elif not self._limits.begin_handshake(host):
            self._limits.leave(host)
            sock.close()
        else:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake = self._loop.create_task(self._handshake(sock, host))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _handshake(self, sock: socket.socket, host: str) -> None:
        """Counts the client until the handshake ends; on success connection_made() has counted it permanently."""
        succeeded = False
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, sock, ssl=self._certificates.context, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S)
            succeeded = True
        except (ConnectionResetError, BrokenPipeError, EOFError) as error:
            # It disconnected during the handshake, as probes do.
            self._log.debug("%s: TLS handshake error from %s - %s", self._name, host or "@", handshake_error(error))
        except OSError as error:
            self._log.error("%s: TLS handshake error from %s - %s", self._name, host or "@", handshake_error(error))
        finally:
            self._limits.end_handshake(succeeded)
            self._limits.leave(host)
