"""Passes a topic's backlog to its channels, and keeps the message that did not reach all of them."""

cimport cython

from nsqc.broker.channel cimport Channel
from nsqc.store.backlog cimport PUT_NO_MEMORY
from nsqc.store.fifo cimport Entry
from nsqc.store.message cimport message_ref, message_unref


@cython.final
cdef class Leftover:
    """At most one message."""

    def __dealloc__(self):
        self.drop()

    cdef bint pass_on(self, Entry *entry, bint copy, list channels) noexcept:
        cdef Channel channel
        cdef list lacking = None
        cdef int result
        for channel in channels:
            if channel.exiting:
                continue
            message_ref(entry.message)
            if copy:
                result = channel.put_copy(entry.message, entry.attempts, entry.defer_ms)
            elif entry.defer_ms:
                result = channel.put_deferred(entry.message, entry.attempts, entry.defer_ms)
            else:
                result = channel.put(entry.message, entry.attempts)
            if result == PUT_NO_MEMORY:
                message_unref(entry.message)
                if lacking is None:
                    lacking = []
                lacking.append(channel)
        if lacking is None:
            message_unref(entry.message)
            return True
        self.entry = entry[0]
        self.copy = copy
        self.channels = lacking
        return False

    cdef bint pass_again(self) noexcept:
        cdef Entry entry = self.entry
        cdef list channels = self.channels
        if channels is None:
            return True
        self.channels = None
        return self.pass_on(&entry, self.copy, channels)

    cdef void drop(self) noexcept:
        if self.channels is not None:
            self.channels = None
            message_unref(self.entry.message)
