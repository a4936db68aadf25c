"""Sends parcels in order to one of several nsqd: if one fails, the next gets the unacknowledged ones. At least once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from nsqc.client.errors import Refused
from nsqc.client.failover import ELSEWHERE
from nsqc.client.options import Options
from nsqc.tools.errors import EXIT_FAILED, NoNode, ToolError
from nsqc.tools.parcel import Parcel
from nsqc.tools.target import Target

TOO_LARGE = ("E_BAD_MESSAGE", "E_BAD_BODY")


class Lane:
    """refused is called with a message that nsqd refuses, as its own parcel, and with the answer. patience:
    consecutive failures, over all nsqd, after which it gives up."""

    def __init__(self, addresses: Sequence[str], options: Options, wake: Callable[[], None],
                 refused: Callable[[Parcel, str], None], patience: int):
        self._targets = [Target(address, options, wake) for address in addresses]
        self._current = 0
        self._pending: deque[Parcel] = deque()      # not submitted yet, or to be sent again
        self._refused, self._patience = refused, patience * len(self._targets)
        self._failures = 0
        self.published = 0          # acknowledged messages
        self._is_needed = False     # a parcel was added

    @property
    def target(self) -> Target:
        """The nsqd currently receiving parcels."""
        return self._targets[self._current]

    @property
    def has_room(self) -> bool:
        """Whether to add another parcel. The first one triggers the connect."""
        return not self._pending and (self.target.has_room or not self._is_needed)

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not self._pending and not self.target.waiting

    @property
    def unknown(self) -> int:
        """Messages sent that may or may not be published."""
        parcels = [*(parcel for parcel in self._pending if parcel.was_sent), *self.target.waiting]
        return sum(parcel.count - parcel.acknowledged if parcel.is_deferred else parcel.count for parcel in parcels)

    def put(self, parcel: Parcel) -> None:
        """Adds a parcel."""
        self._is_needed = True
        self._pending.append(parcel)
        self._send()

    def tend(self) -> None:
        """Sends and reads. Raises Refused for errors that any nsqd would give, NoNode, ToolError."""
        if not self._is_needed:
            return
        target = self.target
        failures = target.failures
        done, back = target.tend()
        for parcel in done:
            self.published += parcel.count
            self._failures = 0
        if target.failures > failures or back:
            for parcel in back:
                parcel.was_sent = True
            self._pending.extendleft(reversed(back))
            self._failed(target)
        self._send()

    def _send(self) -> None:
        while self._pending and self.target.has_room:
            self.target.submit(self._pending.popleft())

    def _failed(self, target: Target) -> None:
        error = target.error
        if isinstance(error, Refused) and error.code in TOO_LARGE and self._pending:
            # One of its messages is at fault: halving finds it.
            parcel = self._pending.popleft()
            halves = parcel.halves()
            if halves:
                self._pending.extendleft(reversed(halves))
            else:
                self._refused(parcel, error.text)
            target.failures, target.next_try = 0, 0.0
            return
        if isinstance(error, Refused) and error.code not in ELSEWHERE:
            raise error
        self._failures += 1
        if self._failures >= self._patience:
            if isinstance(error, Refused):
                raise ToolError(str(error), EXIT_FAILED)
            raise NoNode(str(error))
        self._current = (self._current + 1) % len(self._targets)

    def close(self) -> None:
        """Closes all connections."""
        for target in self._targets:
            target.close()
