from types import TracebackType
from typing import final

from nsqc.client.batch import Answerable, Columns

@final
class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    timeout, or nsqd delivers it again; a second answer is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once if the block raises, unless it was
    answered inside. It works the same with the blocking client and asyncio's.
    """

    @property
    def body(self) -> bytes: ...
    @property
    def id(self) -> bytes:
        """16 characters."""

    @property
    def timestamp_ns(self) -> int:
        """Publish time, nanoseconds since 1970."""

    @property
    def attempts(self) -> int:
        """Number of deliveries, including this one."""

    @property
    def connection(self) -> Answerable:
        """The connection that delivered it."""

    @property
    def answered(self) -> bool:
        """Whether it was finished or requeued."""

    def finish(self) -> None:
        """FIN: the message is done. Raises ConnectError."""

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: nsqd delivers it again after delay_ms milliseconds. Raises ConnectError."""

    def touch(self) -> None:
        """TOUCH: restarts its timeout. Raises ConnectError."""

    def __enter__(self) -> Message: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def messages(columns: Columns, connection: Answerable | None) -> list[Message]:
    """A Message for each row of Inflow.columns()."""
