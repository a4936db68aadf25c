"""Per-user limits, over all of the user's connections."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from nsqc.access.rules import Limits

BURST_S = 1.0       # of publishing allowed at once
LONGEST_S = 3.0     # longest delay of a publish beyond the rate; while one waits this long, the next is refused


class _Rate:
    """An amount per second."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._at = 0.0
        self._used = 0.0        # of the burst; beyond it: debt

    def wait(self, rate: int, amount: int, now: float) -> float:
        """Seconds until this amount may be used, 0 for now."""
        self._used = max(0.0, self._used - (now - self._at) * rate)
        self._at = now
        return max(0.0, (self._used + amount) / rate - BURST_S) if self._used else 0.0

    def use(self, amount: int) -> None:
        """Uses the amount."""
        self._used += amount


class Account:
    """One user's usage. Survives changes of the access file."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.connections = 0
        self._messages = _Rate()
        self._bytes = _Rate()
        self._topics: set[str] = set()

    @property
    def is_metered(self) -> bool:
        """Whether publishes are limited."""
        return self.limits.messages > 0 or self.limits.bytes > 0

    def enter(self) -> str:
        """Counts a connection; returns the reason for refusing it, or an empty text."""
        most = self.limits.connections
        if 0 < most <= self.connections:
            return f"user {self.name} has {self.connections} connections, and max_connections is {most}"
        self.connections += 1
        return ""

    def leave(self) -> None:
        """Uncounts a connection that ended."""
        self.connections -= 1

    def publish(self, messages: int, size: int) -> tuple[float, str]:
        """Counts a publish; returns the client's delay in seconds, and the reason for refusing it, or an empty text.

        size: of the bodies, bytes.
        """
        now, limits, wait = monotonic(), self.limits, 0.0
        for rate, most, amount, key in ((self._messages, limits.messages, messages, "max_messages_per_second"),
                                        (self._bytes, limits.bytes, size, "max_bytes_per_second")):
            if most:
                seconds = rate.wait(most, amount, now)
                # A batch larger than the burst waits; otherwise it could never be published.
                if seconds > max(LONGEST_S, amount / most):
                    return 0.0, f"user {self.name} publishes faster than {key} = {most}"
                wait = max(wait, seconds)
        if limits.messages:
            self._messages.use(messages)
        if limits.bytes:
            self._bytes.use(size)
        return wait, ""

    def create(self, topic: str, exists: Callable[[str], bool]) -> str:
        """Counts a topic created by the user; returns the reason for refusing it, or an empty text."""
        most = self.limits.topics
        if not most:
            return ""
        if len(self._topics) >= most:
            self._topics = {name for name in self._topics if exists(name)}
        if len(self._topics) >= most and topic not in self._topics:
            return f"user {self.name} has created {len(self._topics)} topics, and max_topics is {most}"
        self._topics.add(topic)
        return ""
