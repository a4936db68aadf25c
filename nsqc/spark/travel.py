"""Sends sources, readers and writers to executors, so that an executor without nsqc reports it."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from pyspark import cloudpickle

from nsqc.spark import arrival

cloudpickle.register_pickle_by_value(arrival)  # type: ignore[no-untyped-call]


class Travels:
    """A base of sources, readers and writers. Sends the state returned by travelling()."""

    def travelling(self) -> dict[str, object]:
        """The attributes needed by executors; all by default."""
        return self.__dict__

    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        return arrival.arrived, (pickle.dumps((type(self), self.travelling())),)
