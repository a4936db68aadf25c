"""All peers of a daemon, begun and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any


class Peers:
    """nsqlookupds and statsd. Most daemons have neither, so what talks to them is imported where there is one.

    info: hostname, tcp_port and http_port of the daemon; memory: a nsqc.broker.stats.MemoryWatch.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Any, settings: Any, info: Mapping[str, Any],
                 memory: Any, log: Any):
        self._loop = loop
        self._broker = broker
        self._settings = settings
        self._info = info
        self._memory = memory
        self._log = log
        self._lookupds: Any = None
        self._finder: Any = None
        self._pushing: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """After the listeners are bound, and their ports known."""
        self._settings.on_change(self._update)
        self._update(self._settings.now)
        if self._settings.now.statsd_address:
            self._push()

    async def close(self) -> None:
        """Ends all conversations. Topics that begin from now on just start."""
        self._closed = True
        self._broker.starter = None
        if self._lookupds is not None:
            await self._finder.close()
            await self._lookupds.close()
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.gather(self._pushing, return_exceptions=True)

    def _update(self, options: Any) -> None:
        """A listener of the settings."""
        if options.lookupd_tcp_address and self._lookupds is None and not self._closed:
            self._begin()
        if self._lookupds is not None:
            self._lookupds.update(options)

    def _begin(self) -> None:
        """With the first nsqlookupd. The finder starts topics from now on, as the loop has started those before."""
        from nsqc.peers.channel_lookup import ChannelFinder
        from nsqc.peers.dial import Dialer
        from nsqc.peers.lookup import Lookupds

        dialer = Dialer(self._loop)
        self._lookupds = Lookupds(self._loop, dialer, self._broker, self._settings, self._info, self._log)
        self._finder = ChannelFinder(self._loop, dialer, self._broker, self._settings, self._lookupds, self._log)
        self._broker.listeners.append(self._lookupds.on_event)
        self._broker.starter = self._finder.start

    def _push(self) -> None:
        from nsqc.peers.dial import Dialer
        from nsqc.peers.statsd import Statsd
        from nsqc.peers.tasks import begin

        statsd = Statsd(self._loop, Dialer(self._loop), self._broker, self._settings, self._info, self._memory,
                        self._log)
        self._pushing = begin(self._loop, statsd.run(), self._log)
