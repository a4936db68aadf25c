"""TLS contexts from the options, and certificates that change while the daemon runs."""

from __future__ import annotations

import _ssl
import asyncio
import contextlib
import ctypes
import functools
import os
import ssl
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from nsqc.options import TLS_NOT_REQUIRED, TLS_REQUIRED, TLS_VERSIONS, Options

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
        files = f"{options.tls_cert}, {options.tls_key}"
        raise TlsError(f"failed to build TLS config - {files}: {_reason(error)}") from None
    _prefer_light_suites(context)
    _load_authorities(context, options)
    if options.tls_client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    if options.tls_client_auth_policy == "require":
        _accept_any_certificate(context)
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


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")


# ---------------------------------------------------------------------- what the ssl module cannot say

_VERIFIER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_take_any = _VERIFIER(lambda store, argument: 1)
# The order of Go's TLS, where AES is done by the processor: 128 bits cost a fifth less than OpenSSL's first choice.
_SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"


class _Unreachable(Exception):
    """OpenSSL itself cannot be talked to."""


def _openssl(context: ssl.SSLContext, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of OpenSSL with the context as its first argument. Raises _Unreachable.

    A context object begins with its SSL_CTX; that the pointer found there is one is checked by the options it tells.
    """
    try:
        library = ctypes.CDLL(_ssl.__file__)
        get_options, function = library.SSL_CTX_get_options, getattr(library, name)
    except (AttributeError, OSError):
        raise _Unreachable from None
    get_options.argtypes, get_options.restype = [ctypes.c_void_p], ctypes.c_uint64
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if not pointer.value or get_options(pointer) & 0xFFFFFFFF != int(context.options) & 0xFFFFFFFF:
        raise _Unreachable
    function.argtypes, function.restype = [ctypes.c_void_p, *arguments], result
    return functools.partial(function, pointer)


def _accept_any_certificate(context: ssl.SSLContext) -> None:
    """Has the context demand a client certificate without asking who issued it. Raises TlsError.

    The client still has to prove that it holds the key.
    """
    try:
        set_verifier = _openssl(context, "SSL_CTX_set_cert_verify_callback", None, _VERIFIER, ctypes.c_void_p)
    except _Unreachable:
        raise TlsError("--tls-client-auth-policy=require cannot be had with this Python's ssl module") from None
    set_verifier(_take_any, None)


def _prefer_light_suites(context: ssl.SSLContext) -> None:
    """Puts the suites of TLS 1.3 in an order; where that cannot be had, OpenSSL's own serves as well, only slower."""
    with contextlib.suppress(_Unreachable):
        _openssl(context, "SSL_CTX_set_ciphersuites", ctypes.c_int, ctypes.c_char_p)(_SUITES)


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
