"""The client of one HTTP connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nsqc.net.address import is_loopback

if TYPE_CHECKING:
    from nsqc.access.keeper import Subject
    from nsqc.access.needs import Need
    from nsqc.access.quotas import Account


class Doing(NamedTuple):
    """A permitted call, with its topic and channel."""

    subject: Subject
    need: Need
    topic: str
    channel: str


class Caller:
    """The client's address, its account, and its last permitted call."""

    __slots__ = ("account", "doing", "is_local", "who")

    def __init__(self, host: str, address: str = "", tls: bool = False, common_name: str = "") -> None:
        """host: its address; empty for a unix socket. address: HOST:PORT. common_name: of its certificate; empty
        without one."""
        self.who = (address, host, tls, common_name)    # as nsqc.access.servers.Who
        self.is_local = not host or is_loopback(host)
        self.account: Account | None = None     # counts the connection
        self.doing: Doing | None = None         # its last call, with access rules

    def use(self, account: Account | None) -> str:
        """Has an account count the connection; returns why that is refused, or an empty text."""
        if account is self.account:
            return ""
        if account is not None and (reason := account.enter()):
            return reason
        self.leave()
        self.account = account
        return ""

    def leave(self) -> None:
        """The connection has ended."""
        if self.account is not None:
            self.account.leave()
            self.account = None
