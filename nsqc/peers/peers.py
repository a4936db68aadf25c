"""All peers of a daemon, begun and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nsqc.peers.channels import ChannelFinder
from nsqc.peers.dial import Dialer
from nsqc.peers.lookupds import Lookupds
from nsqc.peers.statsd import Statsd
from nsqc.peers.tasks import begin


class Peers:
    """nsqlookupds and statsd.

    info: hostname, tcp_port and http_port of the daemon; memory: a nsqc.broker.stats.MemoryWatch.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Any, settings: Any, info: Mapping[str, Any],
                 memory: Any, log: Any):
        dialer = Dialer(loop)
        self._loop = loop
        self._broker = broker
        self._settings = settings
        self._log = log
        self._lookupds = Lookupds(loop, dialer, broker, settings, info, log)
        self._finder = ChannelFinder(loop, dialer, broker, settings, self._lookupds, log)
        self._statsd = Statsd(loop, dialer, broker, settings, info, memory, log)
        self._pushing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """After the listeners are bound, and their ports known."""
        self._broker.listeners.append(self._lookupds.on_event)
        self._broker.starter = self._finder.start
        self._settings.on_change(self._lookupds.update)
        self._lookupds.update(self._settings.now)
        if self._settings.now.statsd_address:
            self._pushing = begin(self._loop, self._statsd.run(), self._log)

    async def close(self) -> None:
        """Ends all conversations. Topics that begin from now on just start."""
        self._broker.starter = None
        await self._finder.close()
        await self._lookupds.close()
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.gather(self._pushing, return_exceptions=True)
