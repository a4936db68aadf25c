# Messages that a log has lost: damaged ones, and those of files that are gone. Each counts once, however many channels
# and readers come upon it.

from libc.stdint cimport int64_t

from nsqc.store.log.logstate cimport LogState

cdef int64_t damage_found(LogState log, int64_t first, int64_t end)     # how many of them were not known
cdef void losses_found(LogState log)        # enters it into LogState.losers
cdef void losses_forgotten(LogState log)    # it is deleted
