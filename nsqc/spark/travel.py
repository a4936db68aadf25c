"""How sources, readers and writers travel to executors: so that one without nsqc says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from pyspark import cloudpickle

from nsqc.spark import arrival

cloudpickle.register_pickle_by_value(arrival)  # type: ignore[no-untyped-call]


class Travels:
    """A base of sources, readers and writers. What is sent is the state that travelling() returns."""

    def travelling(self) -> dict[str, object]:
        """The attributes that executors need; all by default."""
        return self.__dict__

    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        return arrival.arrived, (pickle.dumps((type(self), self.travelling())),)
