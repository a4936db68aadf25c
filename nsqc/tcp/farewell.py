"""The end of a daemon's TCP clients: they receive their last replies, and new ones may publish and leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqc.tcp.connection import Connection
    from nsqc.tcp.hub import Hub

LINGER_S = 1.0  # a stop waits this long for clients that accept none of their last replies
LINGER_MOST_S = 10.0  # and this long for all clients, even active ones
ARRIVING_S = 0.5  # time for a new client to send its first command
FAREWELL_S = 0.1  # time for finished clients to confirm the end of TLS


async def farewell(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """Closes all connections. Waits a moment for clients to receive their last replies, and less for the end of TLS."""
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
