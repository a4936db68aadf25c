"""Bytes from clients: decoded, parsed, fairly shared; heartbeats and upgrades. See the .pxd."""

from asyncio import AbstractEventLoop
from typing import final

from nsqc.access.audit import Audit
from nsqc.access.authority import Authority
from nsqc.broker.broker import Broker
from nsqc.log import Log
from nsqc.net.listener import ConnectionLimits
from nsqc.net.tls import Certificates
from nsqc.options.declared import Settings
from nsqc.tcp.connection import Connection
from nsqc.tcp.session import Session

@final
class Hub:
    authority: Authority | None
    def __init__(self, broker: Broker, settings: Settings, log: Log, loop: AbstractEventLoop,
                 connection_limits: ConnectionLimits, tls: Certificates | None = None,
                 authority: Authority | None = None, audit: Audit | None = None) -> None: ...
    @property
    def broker(self) -> Broker: ...
    @property
    def log(self) -> Log: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    @property
    def connections(self) -> dict[Connection, None]: ...
    def sessions(self) -> list[Session]: ...
    def close(self, arriving_s: float = 0) -> None: ...
