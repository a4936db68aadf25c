"""Messages counted by their bodies: many published at once, and everything that a channel delivers."""

from __future__ import annotations

import struct
import time
from collections import Counter

from tests.support.daemon import HEARTBEAT, Daemon
from tests.support.patience import WAIT_SECONDS

RDY = 2500
LOOK_SECONDS = 0.5      # without a message, after which the channel is checked for one


def numbered(count: int, prefix: str = "m", size: int = 0) -> list[bytes]:
    """Distinct bodies, padded to size."""
    return [b"%s%07d" % (prefix.encode(), number) + b"." * max(0, size - 7 - len(prefix)) for number in range(count)]


def consume(node: Daemon, topic: str, channel: str, wanted: set[bytes], seconds: float = 0.0,
            empty: bool = False) -> Counter[bytes]:
    """Receives and finishes until every wanted body has arrived, or no further message can; counts arrivals by body.

    seconds: receives for at least this long. empty: and until the channel is empty.
    """
    client = node.connect().sub(topic, channel, RDY)
    until = time.monotonic() + seconds
    counts: Counter[bytes] = Counter()
    missing = set(wanted)
    buffer = b""
    heard = time.monotonic()

    def goes_on() -> bool:
        return bool(missing) or time.monotonic() < until or (empty and left(node, topic, channel) > 0)

    def is_over() -> bool:
        """After a while without a message."""
        now = time.monotonic()
        return now > max(heard + WAIT_SECONDS, until) or (
            now > until and not node.stats(topic)["depth"] and not left(node, topic, channel))

    try:
        while goes_on():
            client.sock.settimeout(LOOK_SECONDS if missing else max(0.01, until - time.monotonic()))
            try:
                data = client.sock.recv(1 << 20)
            except TimeoutError:
                if is_over():
                    break
                continue
            heard = time.monotonic()
            assert data, "the connection has ended"
            buffer += data
            at, replies = 0, []
            while len(buffer) - at >= 8:
                size, kind = struct.unpack_from(">ii", buffer, at)
                if len(buffer) - at < 4 + size:
                    break
                frame = buffer[at + 8:at + 4 + size]
                at += 4 + size
                if kind == 2:
                    replies.append(b"FIN " + frame[10:26] + b"\n")
                    counts[frame[26:]] += 1
                    missing.discard(frame[26:])
                else:
                    assert (kind, frame) == (0, HEARTBEAT), frame
                    replies.append(b"NOP\n")
            buffer = buffer[at:]
            client.send(b"".join(replies))
    finally:
        client.close()
    return counts


def consume_all(node: Daemon, topic: str, channel: str, wanted: set[bytes]) -> set[bytes]:
    """The channel's deliveries: all wanted messages, and any others."""
    there = consume(node, topic, channel, wanted, empty=True)
    assert left(node, topic, channel) == 0
    return set(there)


def left(node: Daemon, topic: str, channel: str) -> int:
    """The channel's unfinished messages."""
    now = node.channel(topic, channel)
    return now["depth"] + now["in_flight_count"] + now["deferred_count"]
