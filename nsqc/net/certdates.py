"""When certificates end. Their files may have several: a chain is as good as its first certificate to end, a file of
authorities as its last."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from nsqc.log import Log

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
