"""The nsqlookupds and the statsd server of a daemon, started and stopped together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nsqc.broker.broker import Broker
from nsqc.broker.stats import MemoryWatch
from nsqc.log import Log
from nsqc.options.declared import Options, Settings

if TYPE_CHECKING:
    from nsqc.peers.channel_lookup import ChannelLookup
    from nsqc.peers.lookup import Lookup, NodeInfo


class Peers:
    """Most daemons have neither, so their modules are imported when the first is configured."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, settings: Settings, info: NodeInfo,
                 memory: MemoryWatch, log: Log):
        self._loop = loop
        self._broker = broker
        self._settings = settings
        self._info = info
        self._memory = memory
        self._log = log
        self._lookup: Lookup | None = None
        self._channel_lookup: ChannelLookup | None = None
        self._statsd: asyncio.Task[None] | None = None
        self._closed = False
        self._draining = False

    def start(self) -> None:
        """Call it once the listeners are bound and their ports known."""
        self._settings.on_change(self._update)
        self._update(self._settings.now)
        if self._settings.now.statsd_address:
            self._start_statsd()

    async def close(self) -> None:
        """Closes all connections. Topics created from now on start at once."""
        self._closed = True
        self._broker.starter = None
        if self._channel_lookup is not None:
            await self._channel_lookup.close()
        if self._lookup is not None:
            await self._lookup.close()
        if self._statsd is not None:
            self._statsd.cancel()
            await asyncio.gather(self._statsd, return_exceptions=True)

    def drain(self, draining: bool) -> None:
        """Whether the daemon is draining: then it has nothing registered, and registers nothing."""
        self._draining = draining
        if self._lookup is not None:
            self._lookup.drain(draining)

    def _update(self, options: Options) -> None:
        """A listener of the settings."""
        if options.lookupd_tcp_address and self._lookup is None and not self._closed:
            self._start_lookup()
        if self._lookup is not None:
            self._lookup.update(options)

    def _start_lookup(self) -> None:
        """From now on the channel lookup starts new topics. Earlier ones have been started."""
        from nsqc.peers.channel_lookup import ChannelLookup
        from nsqc.peers.http import Dialer
        from nsqc.peers.lookup import Lookup

        dialer = Dialer(self._loop)
        self._lookup = Lookup(self._loop, dialer, self._broker, self._settings, self._info, self._log)
        self._lookup.drain(self._draining)
        self._channel_lookup = ChannelLookup(self._loop, dialer, self._broker, self._settings, self._lookup, self._log)
        self._broker.listeners.append(self._lookup.on_event)
        self._broker.starter = self._channel_lookup.start

    def _start_statsd(self) -> None:
        from nsqc.peers.http import Dialer, spawn
        from nsqc.peers.statsd import Statsd

        statsd = Statsd(self._loop, Dialer(self._loop), self._broker, self._settings, self._info, self._memory,
                        self._log)
        self._statsd = spawn(self._loop, statsd.run(), self._log)
