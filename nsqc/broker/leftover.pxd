# A message of a topic that did not reach some channels for lack of memory: they get it later, once.

from nsqc.store.fifo cimport Entry


cdef class Leftover:
    cdef Entry entry            # owned, with its reference, while channels is not None
    cdef bint copy              # it was read from disk
    cdef list channels          # the channels that lack it; None: no message

    # Passes a message on to these channels and takes its reference. False: some lack it, and it is kept here.
    cdef bint pass_on(self, Entry *entry, bint copy, list channels) noexcept
    cdef bint pass_again(self) noexcept     # the message here; True: no channel lacks it now
    cdef void drop(self) noexcept

    cdef inline bint waits(self) noexcept:
        return self.channels is not None
