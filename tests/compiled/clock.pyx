"""The clock of a daemon (nsqc.store.memory) from Python."""

from nsqc.store.memory cimport Clock


def read(Clock clock not None) -> tuple:
    """(wall, monotonic) in nanoseconds, as of the last refresh."""
    return clock.wall, clock.monotonic


def refresh(Clock clock not None):
    """Reads both clocks."""
    clock.refresh()
