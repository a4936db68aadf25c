"""What this room calls upward in Python: Protocols that other rooms, or its own compiled classes, implement."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Protocol


class Grant(Protocol):
    """An answer of an auth server: nsqc.peers.auth.Grant."""

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
    """Asks auth servers: nsqc.peers.auth.Authority."""

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
