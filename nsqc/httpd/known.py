"""Recognises plain publishes, the hot path: `POST /pub?topic=NAME` with a body of known length, and nothing special.

Two memories: request targets, which the parser's callbacks look up, and whole heads byte by byte. A client that repeats
a head needs no parser. All connections share both; with access rules each has heads of its own, which those permit.
"""

from __future__ import annotations

from nsqc.wire.names import is_valid_name

MOST_SHARED = 4096          # entries of each memory; a full one starts over
MOST_OWN = 64               # of the heads of one connection
MOST_HEAD_BYTES = 1024


Heads = dict[bytes, tuple[bytes, int]]      # whole heads to topics, and the lengths of the bodies


def learn(heads: Heads, head: bytes, topic: bytes, length: int, most: int = MOST_SHARED) -> None:
    """Remembers the head of a plain publish, unless its end is not the one that is looked for."""
    if len(head) <= MOST_HEAD_BYTES and head.endswith(b"\r\n\r\n"):
        if len(heads) >= most:
            heads.clear()
        heads[head] = topic, length


class KnownPublishes:
    """Targets and heads of plain publishes that were seen before."""

    __slots__ = ("heads", "targets")

    def __init__(self) -> None:
        self.targets: dict[bytes, bytes] = {}               # topics
        self.heads: Heads = {}

    def find_topic(self, target: bytes) -> bytes | None:
        """The topic, if a new request target is that of a plain publish; remembers it."""
        topic = plain_topic(target)
        if topic is not None:
            if len(self.targets) >= MOST_SHARED:
                self.targets.clear()
            self.targets[target] = topic
        return topic

    def forget_heads(self) -> None:
        """For when an option has changed that a publish depends on."""
        self.heads.clear()


class NoPublishes(KnownPublishes):
    """For an API without publishes: `/pub` is a path like any other."""

    __slots__ = ()

    def find_topic(self, target: bytes) -> bytes | None:
        """None."""
        return None


def plain_topic(target: bytes) -> bytes | None:
    """The topic of `/pub?topic=NAME` with a valid name that needs no escape; None: the target is anything else."""
    path, _, name = target.partition(b"?topic=")
    return name if path == b"/pub" and is_valid_name(name) else None
