"""The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.

A codec's library is loaded by the first connection that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqc.wire.codec import Codec

LIBRARIES = ("isal", "cramjam")     # loaded late, see nsqc.process.later


def new_codec(name: str, level: int) -> Codec:
    """A codec for one connection. level: 1 to 9, for codecs that have levels."""
    return CODECS[name](level)


def _deflate(level: int) -> Codec:
    from nsqc.wire.deflate import Deflate

    return Deflate(level)


def _snappy(level: int) -> Codec:
    from nsqc.wire.snappy import Snappy

    return Snappy()


CODECS: dict[str, Callable[[int], Codec]] = {"deflate": _deflate, "snappy": _snappy}
