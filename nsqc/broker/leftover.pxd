# A message of a topic that some channels lack, for want of memory: it goes to them later, once.

from nsqc.store.fifo cimport Entry


cdef class Leftover:
    cdef Entry entry            # owned, with its reference, while channels is not None
    cdef bint copy              # it is read from disk
    cdef list channels          # those that lack it; None: there is no such message

    # Passes a message on to these channels and takes its reference. False: some of them lack it, and it stays here.
    cdef bint pass_on(self, Entry *entry, bint copy, list channels) noexcept
    cdef bint pass_again(self) noexcept     # the message here; True: no channel lacks it any more
    cdef void drop(self) noexcept

    cdef inline bint waits(self) noexcept:
        return self.channels is not None
