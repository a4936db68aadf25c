# A publishing command whose body does not come in one read. What there is of it lies in its messages already, so that
# each byte is copied once at most: what has come with other bytes is copied from the receive area, and what is missing
# of a large message is read straight into it.
#
#   PUB t\n | size | body . . . . . .             one message, known from its size on
#   MPUB t\n | size | count | size | body | ...   one after the other; they are published when all are there
#
# The line is gone when a body begins to be gathered: what the command needs of it is kept here.

from libc.stdint cimport uint32_t
from nsqc.store.fifo cimport Fifo
from nsqc.store.message cimport Message
from nsqc.store.slices cimport Slicer
from nsqc.wire.parser cimport Parser

cdef enum:
    LARGE_MESSAGE = 8192        # bytes of the body of PUB from which on it is gathered
    LARGE_BATCH = 65536         # of MPUB
    LEAST_GATHERED = 4096       # that must have come: who only announces much gets no memory for it


cdef class LargeBody:
    cdef char[64] topic_name
    cdef Py_ssize_t topic_bytes
    cdef Fifo whole             # owned, with the references: the messages that have come whole
    cdef Message *partial       # owned: the one that is coming; NULL: its size is not known yet
    cdef uint32_t have          # bytes of its body

    # Whether a command of which so many bytes have come, its body not whole, should be gathered.
    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept
    # Begins with the parser's command, whose bytes lie at c_at; how many of them are done with, -1: no memory.
    cdef Py_ssize_t begin(self, Parser parser, const char *c_at) noexcept
    # Gathers from these bytes and sets used to those that are done with. Returns a ParseEvent: PARSE_MORE, PARSE_BODY
    # (all messages are in whole), PARSE_NO_MEMORY, or what is wrong with a size.
    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    # Bytes that can be read straight into a message, at into().
    cdef Py_ssize_t missing(self) noexcept
    cdef char *into(self) noexcept
    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept   # so far; kept: not gathered yet
    cdef void drop(self, Slicer slicer) noexcept    # all messages
    cdef bint _expect(self, uint32_t size) noexcept     # a message of that size; False: no memory
