"""Waiting readers. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    MOST_WOKEN = 64             # readers per loop iteration: each builds its answer then


@cython.final
cdef class Readers:
    """Readers waiting for a record of a log."""

    def __init__(self, loop):
        self.loop = loop
        self.waiting = {}
        self.woken = []

    cdef WaitsForRecords add(self, int64_t offset, call):
        cdef WaitsForRecords waits = WaitsForRecords.__new__(WaitsForRecords)
        waits.readers = self
        waits.offset = offset
        waits.call = call
        self.waiting[waits] = None
        return waits

    cdef void wake(self, int64_t end, bint closed) noexcept:
        cdef WaitsForRecords waits
        cdef bint scheduled = len(self.woken) > 0
        if self.waiting:
            for waits in list(self.waiting):
                if waits.offset < end or closed:
                    self.woken.append(waits)
                    del self.waiting[waits]
        if closed:
            self.loop = None
        if self.woken and (closed or not scheduled):
            self.wake_some()

    def wake_some(self):
        """Calls the longest waiting readers; the others follow in the next loop iterations."""
        cdef WaitsForRecords waits
        cdef list woken = self.woken
        if self.loop is None:
            self.woken = []
        else:
            woken, self.woken = woken[:MOST_WOKEN], woken[MOST_WOKEN:]
        for waits in woken:
            if waits.call is not None:
                waits.call()
        if self.woken:
            self.loop.call_soon(self.wake_some)


@cython.final
cdef class WaitsForRecords:
    """Calls a function once a log has a record at an offset, unless it is cancelled."""

    def expire(self):
        """Calls the function in one of the next loop iterations: many may expire at once."""
        cdef Readers readers = self.readers
        if readers is None or self not in readers.waiting:
            return
        del readers.waiting[self]
        if not readers.woken:
            readers.loop.call_soon(readers.wake_some)
        readers.woken.append(self)

    def cancel(self):
        """Cancels the call."""
        self.call = None
        if self.readers is not None:
            self.readers.waiting.pop(self, None)    # an idle log may be polled for long
