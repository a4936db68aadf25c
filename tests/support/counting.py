"""Messages counted by their bodies: many published at once, and all that a channel has taken and finished."""

from __future__ import annotations

import struct
from collections import Counter

from tests.support.daemon import HEARTBEAT, Daemon, batch

BATCH = 5000
RDY = 2500
QUIET_SECONDS = 3


def numbered(count: int, prefix: str = "m", size: int = 0) -> list[bytes]:
    """Bodies that tell themselves apart, filled up to size."""
    return [b"%s%07d" % (prefix.encode(), number) + b"." * max(0, size - 7 - len(prefix)) for number in range(count)]


def publish(node: Daemon, topic: str, bodies: list[bytes]) -> None:
    """All of them, each acknowledged."""
    client = node.connect()
    for at in range(0, len(bodies), BATCH):
        client.ok(f"MPUB {topic}", batch(*bodies[at:at + BATCH]))
    client.close()


def consume(node: Daemon, topic: str, channel: str, wanted: set[bytes]) -> Counter[bytes]:
    """Takes and finishes until every wanted body has come, or nothing comes any more: how often each came."""
    client = node.connect().sub(topic, channel, RDY)
    client.sock.settimeout(QUIET_SECONDS)
    found: Counter[bytes] = Counter()
    left = set(wanted)
    kept = b""
    try:
        while left:
            try:
                more = client.sock.recv(1 << 20)
            except TimeoutError:
                break
            assert more, "the connection has ended"
            kept += more
            at, fins = 0, []
            while len(kept) - at >= 8:
                size, kind = struct.unpack_from(">ii", kept, at)
                if len(kept) - at < 4 + size:
                    break
                data = kept[at + 8:at + 4 + size]
                at += 4 + size
                if kind == 2:
                    fins.append(b"FIN " + data[10:26] + b"\n")
                    found[data[26:]] += 1
                    left.discard(data[26:])
                else:
                    assert (kind, data) == (0, HEARTBEAT), data
                    fins.append(b"NOP\n")
            kept = kept[at:]
            client.send(b"".join(fins))
    finally:
        client.close()
    return found
