"""Recognises plain publishes, the hot path: `POST /pub?topic=NAME` with a body of known length, and nothing special.

Has two caches: request targets, which the parser's callbacks look up, and whole heads byte by byte. A client that
repeats a head needs no parser. All connections share both; with access rules each has its own permitted heads.
"""

from __future__ import annotations

from nsqc.wire.names import is_valid_name

MOST_SHARED = 4096          # entries of each cache; a full one starts over
MOST_OWN = 64               # of the heads of one connection
MOST_HEAD_BYTES = 1024


Heads = dict[bytes, tuple[bytes, int]]      # from whole heads to topics and body lengths


def learn(heads: Heads, head: bytes, topic: bytes, length: int, most: int = MOST_SHARED) -> None:
    """Remembers the head of a plain publish, unless it ends in an unexpected way."""
    if len(head) <= MOST_HEAD_BYTES and head.endswith(b"\r\n\r\n"):
        if len(heads) >= most:
            heads.clear()
        heads[head] = topic, length


class KnownPublishes:
    """Targets and heads of earlier plain publishes."""

    __slots__ = ("heads", "targets")

    def __init__(self) -> None:
        self.targets: dict[bytes, bytes] = {}               # topics
        self.heads: Heads = {}

    def find_topic(self, target: bytes) -> bytes | None:
        """The topic, if a new request target is a plain publish; remembers it."""
        topic = plain_topic(target)
        if topic is not None:
            if len(self.targets) >= MOST_SHARED:
                self.targets.clear()
            self.targets[target] = topic
        return topic

    def forget_heads(self) -> None:
        """Call it when an option that affects publishes has changed."""
        self.heads.clear()


def plain_topic(target: bytes) -> bytes | None:
    """The topic of `/pub?topic=NAME` with a valid name without escapes; None: another target."""
    path, _, name = target.partition(b"?topic=")
    return name if path == b"/pub" and is_valid_name(name) else None
