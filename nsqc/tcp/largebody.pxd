# A publishing command whose body takes several reads. Its bytes go into messages as they arrive, so each byte is copied
# at most once: bytes that share a read with others are copied from the receive area, and the rest of a large message
# is read straight into it.
#
#   PUB t\n | size | body . . . . . .             one message, known from its size on
#   MPUB t\n | size | count | size | body | ...   one after the other; published when all have arrived
#
# The messages of a batch often have the same size. So after a large one, the same size is guessed for the next, and the
# next read goes into that: first the four bytes of its size, right before the body, where its id will be, then the
# body. After a wrong guess, the bytes read there are gathered again.
#
# Gathering drops the line, so the words that the command needs are kept here.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.store.message cimport Message
from nsqc.store.slices cimport Slicer
from nsqc.wire.parser cimport Command, Parser

cdef enum:
    LARGE_MESSAGE = 8192        # least body bytes of a PUB to gather it
    LARGE_BATCH = 65536         # of an MPUB
    # Body bytes that must have arrived: a client that only announces a large body gets no memory for it. A message in
    # a slab may take all that it will need at once, in a huge page: 128 KiB.
    LEAST_GATHERED = 16384
    SIZE_BYTES = 4              # of the size before a body, a batch's count, and the size before each message

cdef enum Came:
    CAME_PART
    CAME_WHOLE                  # call gather() without bytes
    CAME_WRONG                  # the guess was wrong: take_wrong()


cdef class LargeBody:
    cdef char[64] topic_name
    cdef Py_ssize_t topic_bytes
    cdef char[64] id            # of the publish, if the client may give one
    cdef Py_ssize_t id_bytes    # 0: none
    cdef int64_t defer_ms       # of DMPUB
    cdef OpenBatch batch        # receives the complete messages
    cdef Message *partial       # owned: the arriving one; NULL: size not known yet
    cdef int64_t have           # bytes of its body; negative: missing bytes of its size field
    cdef bint guessed           # the size is a guess; until confirmed, all input must be read into it
    cdef uint32_t last_size     # of the previous message

    # Whether to gather an incomplete command; have: its bytes so far, line included.
    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept
    # Begins with the parser's command at c_at. Returns the bytes used of it; -1: no memory.
    cdef Py_ssize_t begin(self, Parser parser, const char *c_at, OpenBatch batch) noexcept
    # Gathers from these bytes and sets used to the bytes used. Returns a ParseEvent: PARSE_MORE, PARSE_BODY (batch has
    # all messages), PARSE_NO_MEMORY, or an error of a size.
    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept
    # Bytes that can be read straight into a message, at into(); guesses the next one if the last had at least `least`.
    cdef Py_ssize_t missing(self, Parser parser, uint32_t least) noexcept
    cdef char *into(self) noexcept
    # After length bytes were read there.
    cdef int came(self, Parser parser, Py_ssize_t length) noexcept      # Came
    # With CAME_WRONG: the guessed message, with its reference; 4 + have bytes from body - 4 on are input.
    cdef Message *take_wrong(self) noexcept
    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept   # so far; kept: not gathered yet
    cdef void drop(self, Slicer slicer) noexcept    # all messages
    cdef void _keep_words(self, const Command *command) noexcept
    cdef bint _expect(self, uint32_t size) noexcept     # of that size; False: no memory
