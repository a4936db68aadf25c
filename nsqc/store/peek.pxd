# Looks at waiting messages without taking them: memory, disk queues, logs.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.log.cursor cimport Cursor
from nsqc.store.message cimport Entry, Fifo, FifoWalk, Heap, Message


# ====================================================================== peek
# Reads messages that are queued, in flight or deferred, and copies the parts that a page shows. Read-only: nothing is
# taken, counted or locked, and delivery is unaffected.
#
# A page is assembled in slices. Positions survive changes between two slices: entries of a queue are numbered, and
# deliveries are listed by due time.

cdef class Page:
    cdef readonly list messages    # type: list[Seen]; of Seen
    cdef readonly int64_t left      # messages that still fit
    cdef readonly int64_t room      # bytes of bodies that still fit
    cdef int64_t body_bytes         # most bytes of each body

    cdef bint is_full(self, int64_t size) noexcept      # for one more body; the first always fits
    cdef int add(self, Message *message, uint32_t attempts, uint32_t defer_ms) except -1


cdef class FifoPeek:
    cdef object owner               # keeps the queue alive
    cdef Fifo *fifo                 # borrowed
    cdef FifoWalk walk

    @staticmethod
    cdef FifoPeek new(object owner, Fifo *fifo, int64_t at)


cdef struct Candidate:
    int64_t due_ns          # monotonic
    char tie[16]            # breaks ties of the due time: the id, or the offset in hexadecimal digits
    Message *message        # a reference; NULL: its body is in the log
    int64_t offset          # in the log; below 0: not from a log
    int64_t delivered_ns    # monotonic, of one in flight
    int64_t owner           # id of the consumer; 0: deferred
    uint32_t attempts


cdef class HeapPeek:
    cdef object owner               # keeps the heap alive
    cdef Heap *heap                 # borrowed
    cdef Heap *front                # borrowed: its later entries are listed, too; NULL: there is none
    cdef Cursor cursor              # also lists its deferred messages; None: not listed, or no cursor
    cdef Candidate after            # the page starts after this one
    cdef Candidate *found           # owned: the first ones after it, a heap with the last of them at the top
    cdef int64_t count, most
    cdef int part                   # heap, front, the cursor's deferred messages, those ahead of it, done
    cdef int64_t at                 # within the part: an index, or for the last part an offset
    cdef readonly bint beyond       # more than `most` match

    @staticmethod
    cdef HeapPeek new(object owner, Heap *heap, Heap *front, Cursor cursor, int64_t after_ns, bytes after_tie,
                      int64_t most)
    cdef int _offer(self, Candidate *candidate) except -1
    # False: the slice is over.
    cdef bint _look_at_heap(self, Heap *heap, int64_t after_ns, int64_t until_ns) except -1
    cdef bint _look_at_deferred(self, int64_t until_ns) except -1
    cdef bint _look_ahead(self, int64_t until_ns) except -1


# ====================================================================== peek

# Reads the records of a disk queue without consuming them. The functions are for Python: see the .pyx.
