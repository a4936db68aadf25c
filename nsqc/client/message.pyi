from types import TracebackType
from typing import final

from nsqc.client.batch import Answers, Columns

@final
class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    time-out, or it comes again; the second answer to a message is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once where the block raises, unless it was
    answered within. The client that it came from, blocking or asyncio's, makes no difference.
    """

    @property
    def body(self) -> bytes: ...
    @property
    def id(self) -> bytes:
        """16 characters."""

    @property
    def timestamp_ns(self) -> int:
        """When it was published, nanoseconds since 1970."""

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included."""

    @property
    def connection(self) -> Answers:
        """What it came over."""

    @property
    def answered(self) -> bool:
        """Whether it was finished or requeued."""

    def finish(self) -> None:
        """FIN: it is done. Raises ConnectError."""

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: it is to come again, after delay_ms milliseconds. Raises ConnectError."""

    def touch(self) -> None:
        """TOUCH: its time-out begins anew. Raises ConnectError."""

    def __enter__(self) -> Message: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def messages(columns: Columns, connection: Answers | None) -> list[Message]:
    """A Message for each row of Inflow.columns()."""
