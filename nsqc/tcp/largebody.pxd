# A publishing command whose body does not come in one read. What there is of it lies in its messages already, so that
# each byte is copied once at most: what has come with other bytes is copied from the receive area, and what is missing
# of a large message is read straight into it.
#
#   PUB t\n | size | body . . . . . .             one message, known from its size on
#   MPUB t\n | size | count | size | body | ...   one after the other; they are published when all are there
#
# The messages of a batch are often of one size. So behind a large one another of its size is guessed, and the next read
# goes into that: first the four bytes of its size, right before the body, where its id will be, then the body. What has
# been read into a wrong guess is gathered again from there.
#
# The line is gone when a body begins to be gathered: what the command needs of it is kept here.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.fifo cimport Fifo
from nsqc.store.message cimport Message
from nsqc.store.slices cimport Slicer
from nsqc.wire.parser cimport Parser

cdef enum:
    LARGE_MESSAGE = 8192        # bytes of the body of PUB from which on it is gathered
    LARGE_BATCH = 65536         # of MPUB
    # Of the body, that must have come: who only announces much gets no memory for it. A message in a slab may take all
    # that it will need at once, in a huge page: 128 KiB.
    LEAST_GATHERED = 16384
    SIZE_BYTES = 4              # of the size before a body, of a batch's count, and of the size before each message

cdef enum Came:
    CAME_PART
    CAME_WHOLE                  # gather() goes on, without bytes
    CAME_WRONG                  # the guess was: take_wrong()


cdef class LargeBody:
    cdef char[64] topic_name
    cdef Py_ssize_t topic_bytes
    cdef Fifo whole             # owned, with the references: the messages that have come whole
    cdef Message *partial       # owned: the one that is coming; NULL: its size is not known yet
    cdef int64_t have           # bytes of its body; below zero: so many of its size field are missing
    cdef bint guessed           # its size is; nothing but reads into it may go on
    cdef uint32_t last_size     # of the message before it

    # Whether a command of which so many bytes have come, line included, its body not whole, should be gathered.
    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept
    # Begins with the parser's command, whose bytes lie at c_at; how many of them are done with, -1: no memory.
    cdef Py_ssize_t begin(self, Parser parser, const char *c_at) noexcept
    # Gathers from these bytes and sets used to those that are done with. Returns a ParseEvent: PARSE_MORE, PARSE_BODY
    # (all messages are in whole), PARSE_NO_MEMORY, or what is wrong with a size.
    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    # Bytes that can be read straight into a message, at into(); guesses the next one if the last one had least bytes.
    cdef Py_ssize_t missing(self, Parser parser, uint32_t least) noexcept
    cdef char *into(self) noexcept
    # So many have been read there.
    cdef int came(self, Parser parser, Py_ssize_t length) noexcept      # Came
    # With CAME_WRONG: the message that was guessed, with its reference; 4 + have bytes from body - 4 on are input.
    cdef Message *take_wrong(self) noexcept
    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept   # so far; kept: not gathered yet
    cdef void drop(self, Slicer slicer) noexcept    # all messages
    cdef bint _expect(self, uint32_t size) noexcept     # a message of that size; False: no memory
