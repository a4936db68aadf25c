"""What this room calls upward in Python: Protocols that other rooms, or its own compiled classes, implement."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Protocol


class Account(Protocol):
    """What a user uses, over all of its connections: nsqc.access.quotas.Account. Texts say why something is refused;
    they are empty if it is not."""

    @property
    def is_metered(self) -> bool:
        """Whether publishes count."""
        ...

    def enter(self) -> str:
        """Counts a connection."""
        ...

    def leave(self) -> None:
        """A connection that was counted has ended."""
        ...

    def publish(self, messages: int, size: int) -> tuple[float, str]:
        """Counts a publish; also the seconds that its client has to wait after it."""
        ...

    def create(self, topic: str, exists: Callable[[str], bool]) -> str:
        """Counts a topic that is created."""
        ...


class Audit(Protocol):
    """Records calls: nsqc.access.audit.Audit."""

    @property
    def wants_changes(self) -> bool:
        """Also those that are permitted."""
        ...

    def record(self, user: str, address: str, call: str, target: str, result: str) -> None: ...


class Grant(Protocol):
    """What a client may do: nsqc.peers.grants.Grant, nsqc.access.authority.LocalGrant."""

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
        """Whether a client may subscribe to the channel, or publish to the topic where channel is empty."""
        ...


class Question(Protocol):
    """A question that is under way: an asyncio.Task."""

    def cancel(self) -> object: ...


class Authority(Protocol):
    """Asks auth servers, or an access file: nsqc.peers.auth.Authority, nsqc.access.authority.AccessAuthority."""

    def presented(self, who: tuple[str, str, bool, str]) -> Grant | None:
        """The grant of a client that has sent no AUTH."""
        ...

    # Any: of the authority's own kind
    def renewed(self, grant: Any) -> Grant | None:
        """A grant by the access file as it is now; None: nothing is left of it."""
        ...

    def ask(self, who: tuple[str, str, bool, str], secret: bytes,
            answered: Callable[[Grant | None, bool], None]) -> Question:
        """Has answered(grant, all servers are down) called later; the grant is None without a good answer.

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
