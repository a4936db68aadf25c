"""Tokens: random bytes, stored as salted scrypt hashes.

A token is nsqc_ID_SECRET. ID finds its hash, so checking a token costs one hash regardless of their number.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import NamedTuple

PREFIX = "nsqc_"
ID_DIGITS = 12
_TOKEN = re.compile(rb"nsqc_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_HASH = re.compile(r"scrypt:([0-9a-f]{12}):(\d{1,2}):(\d{1,2}):(\d):([A-Za-z0-9_-]{22,}):([A-Za-z0-9_-]{43})")
# A check takes 50 ms and 16 MiB.
_LOG_N, _R, _P = 14, 8, 1
_LEAST_LOG_N, _MOST_LOG_N = 14, 18
_MOST_MEMORY = 600 * 1024 * 1024
_SALT_BYTES = 16
_SECRET_BYTES = 32
_HASH_BYTES = 32


class TokenError(ValueError):
    """The text is not the hash of a token; says why."""


class Hash(NamedTuple):
    """A token as stored in the access file."""

    id: str
    log_n: int      # of scrypt, as r and p
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, token: bytes) -> bool:
        """Whether it is the hash of this token. Slow: do not call it on the event loop."""
        return hmac.compare_digest(_digest(token, self), self.digest)

    def __str__(self) -> str:
        return f"scrypt:{self.id}:{self.log_n}:{self.r}:{self.p}:{_text(self.salt)}:{_text(self.digest)}"


def make() -> tuple[str, Hash]:
    """Creates a token and its hash."""
    identity = os.urandom(ID_DIGITS // 2).hex()
    token = f"{PREFIX}{identity}_{_text(os.urandom(_SECRET_BYTES))}"
    unfinished = Hash(identity, _LOG_N, _R, _P, os.urandom(_SALT_BYTES), b"")
    return token, unfinished._replace(digest=_digest(token.encode(), unfinished))


def id_of(token: bytes) -> str | None:
    """The ID in a token; None: the text is not a token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1].decode()


def parse_hash(text: str) -> Hash:
    """Parses a hash from the access file. Raises TokenError, whose text reveals nothing of the hash."""
    match = _HASH.fullmatch(text)
    if match is None:
        raise TokenError("not the hash of a token; nsqc access token makes one")
    log_n, r, p = int(match[2]), int(match[3]), int(match[4])
    if not (_LEAST_LOG_N <= log_n <= _MOST_LOG_N and _R <= r <= 16 and 1 <= p <= 4):
        raise TokenError("its scrypt parameters are out of range; nsqc access token makes a hash")
    try:
        return Hash(match[1], log_n, r, p, _bytes(match[5]), _bytes(match[6]))
    except binascii.Error:
        raise TokenError("not the hash of a token; nsqc access token makes one") from None


def _digest(token: bytes, form: Hash) -> bytes:
    return hashlib.scrypt(token, salt=form.salt, n=1 << form.log_n, r=form.r, p=form.p, maxmem=_MOST_MEMORY,
                          dklen=_HASH_BYTES)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
