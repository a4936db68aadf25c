from typing import NamedTuple, Never, final

class Seen(NamedTuple):
    """A message as a page shows it."""

    id: bytes
    timestamp: int  # ns since 1970
    attempts: int
    size: int  # of the body, bytes
    body: bytes  # its beginning
    defer_ms: int  # of a message in a topic: its delay, which has not begun

class Held(NamedTuple):
    """A message that is in flight or deferred."""

    due_ns: int  # monotonic
    tie: bytes  # orders those that are due together
    seen: Seen | None  # None: it is in the log, at `offset`
    attempts: int
    offset: int  # below 0: it is not from a log
    delivered_ns: int  # monotonic; in flight
    owner: int  # id of the consumer it is in flight to; 0: deferred

@final
class Page:
    def __init__(self, most: int, body_bytes: int, room: int) -> None:
        """At most so many messages, so many bytes of each body, and of all together; the first message always fits."""

    @property
    def messages(self) -> list[Seen]: ...
    @property
    def left(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def full(self) -> bool:
        """Whether not even an empty message fits."""

    def add_records(self, data: bytes, at: int = 0, skip: int = 0) -> tuple[int, int]:
        """Adds whole records of a file, from a position in data on; the first `skip` are left out.

        Returns the position behind the last that was added or left out, and how many are still to be left out.
        """

@final
class FifoPeek:
    """Made by nsqc.broker.peek."""

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def run(self, page: Page) -> bool:
        """Adds messages for a slice; False: there is more for this page."""

    @property
    def at(self) -> int:
        """The number of the next message."""

    @property
    def ended(self) -> bool:
        """Whether there is none."""

@final
class HeapPeek:
    """Made by nsqc.broker.peek."""

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def run(self) -> bool:
        """Looks for a slice; False: not at everything yet."""

    def held(self, page: Page) -> list[Held]:
        """What was found, in order, as far as the page has room; those of a log without their bodies."""

    @property
    def beyond(self) -> bool:
        """Whether there are more than were asked for."""
