"""Upward calls of this room in Python: Protocols that other rooms, or its own compiled classes, implement."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Protocol


class Account(Protocol):
    """A user's usage, over all its connections: nsqc.access.quotas.Account. Returned texts are reasons for a refusal;
    empty: permitted."""

    @property
    def is_metered(self) -> bool:
        """Whether publishes count."""
        ...

    def enter(self) -> str:
        """Counts a new connection."""
        ...

    def leave(self) -> None:
        """A counted connection has ended."""
        ...

    def publish(self, messages: int, size: int) -> tuple[float, str]:
        """Counts a publish; returns the seconds that its client has to wait after it, and a text."""
        ...

    def create(self, topic: str, exists: Callable[[str], bool]) -> str:
        """Counts a new topic."""
        ...


class Audit(Protocol):
    """Records calls: nsqc.access.audit.Audit."""

    @property
    def wants_changes(self) -> bool:
        """Whether permitted calls are recorded, too."""
        ...

    def record(self, user: str, address: str, call: str, target: str, result: str) -> None: ...


class Grant(Protocol):
    """The permissions of a client: nsqc.peers.grants.Grant, nsqc.access.authority.LocalGrant."""

    @property
    def account(self) -> Account | None: ...

    @property
    def identity(self) -> str: ...

    @property
    def identity_url(self) -> str: ...

    @property
    def rules(self) -> Sized: ...

    @property
    def ttl_s(self) -> int: ...

    def allows(self, topic: str, channel: str) -> bool:
        """Whether a client may subscribe to the channel, or publish to the topic if channel is empty."""
        ...


class Question(Protocol):
    """A pending question: an asyncio.Task."""

    def cancel(self) -> object: ...


class Authority(Protocol):
    """Asks auth servers, or an access file: nsqc.peers.auth.Authority, nsqc.access.authority.AccessAuthority."""

    def presented(self, who: tuple[str, str, bool, str]) -> Grant | None:
        """The grant of a client that has not sent AUTH."""
        ...

    # Any: of the authority's own kind
    def renewed(self, grant: Any) -> Grant | None:
        """A grant according to the current access file; None: nothing is permitted any more."""
        ...

    def ask(self, who: tuple[str, str, bool, str], secret: bytes,
            answered: Callable[[Grant | None, bool], None]) -> Question:
        """Calls answered(grant, all servers are down) later; the grant is None without a good answer.

        who: (address, host or "", whether it uses TLS, common name of its certificate or "").
        """
        ...


class AuthClient(Protocol):
    """The client of a Guard: nsqc.tcp.session.Session."""

    @property
    def address(self) -> str: ...

    def who(self) -> tuple[str, str, bool, str]: ...

    def permissions_changed(self, waited: bool) -> None:
        """The guard has a new answer; waited: a command waits for it."""
        ...
