"""The end of a daemon's TCP clients: they take their last replies, and new ones may publish and leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqc.tcp.connection import Connection
    from nsqc.tcp.hub import Hub

LINGER_S = 1.0  # how long a stop waits for clients that take none of their last replies
LINGER_MOST_S = 10.0  # and how long for all of them, even if they take some
ARRIVING_S = 0.5  # how long a new client may take to send what it has connected for
FAREWELL_S = 0.1  # how long for clients that have taken all to confirm the end of TLS


async def farewell(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """Closes all connections. Waits a moment for clients to take their last replies, and less if only the end of TLS
    is due."""
    start = last = loop.time()
    left = sum(connection.unsent() for connection in hub.connections)
    while hub.connections:
        now, before = loop.time(), left
        left = sum(connection.unsent() for connection in hub.connections)
        if left < before:
            last = now
        if (now - last >= LINGER_S or now - start >= LINGER_MOST_S
                or (now - start >= FAREWELL_S and not any(map(_is_busy, hub.connections)))):
            break
        await asyncio.sleep(0.01)
        hub.close(ARRIVING_S)
    hub.close()


async def accepted() -> None:
    """Returns when all accepted clients have their connection_made(), and the loop has read once more."""
    for _ in range(2):
        await asyncio.sleep(0)


def _is_busy(connection: Connection) -> bool:
    """Whether a stop waits for this client."""
    return connection.unsent() > 0 or connection.arrives(ARRIVING_S)
