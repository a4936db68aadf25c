"""Large bodies of PUB and MPUB, gathered in messages as they arrive. Knows no socket and publishes nothing."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from nsqc.store.backlog cimport PUT_EXITING
from nsqc.store.fifo cimport fifo_push
from nsqc.store.message cimport Message, message_new, message_unref
from nsqc.store.publishids cimport MOST_ID_BYTES
from nsqc.store.slices cimport Slicer
from nsqc.wire.mpub cimport MPUB_WHOLE, mpub_next, mpub_passed
from nsqc.wire.parser cimport (CMD_DMPUB, CMD_PUB, AT_BODY, PARSE_BODY, PARSE_MORE, PARSE_NO_MEMORY, Command, Parser,
                               command_id_at, command_is_batch, mpub_event, parse_decimal)

cdef const char *NO_ID = b"0000000000000000"


@cython.final
cdef class LargeBody:
    """The arrived part of a large body; created when a connection first sends one."""

    def __dealloc__(self):
        if self.partial is not NULL:
            message_unref(self.partial)

    @staticmethod
    cdef bint wants(Parser parser, Py_ssize_t have) noexcept:
        # Of the body alone: the count of a batch must have arrived, and a line may be long.
        have -= parser.line_bytes + SIZE_BYTES
        if parser.state != AT_BODY or have < LEAST_GATHERED:
            return False
        if parser.command.kind == CMD_PUB:
            return parser.command.size >= LARGE_MESSAGE
        return command_is_batch(parser.command.kind) and (parser.command.size >= LARGE_BATCH or have >= LARGE_BATCH)

    cdef Py_ssize_t begin(self, Parser parser, const char *c_at, OpenBatch batch) noexcept:
        self.batch = batch
        self.last_size = 0
        self.topic_bytes = parser.command.arg_bytes[1]
        memcpy(self.topic_name, parser.command.args[1], <size_t> self.topic_bytes)
        self._keep_words(&parser.command)
        if parser.command.kind == CMD_PUB:
            if not self._expect(<uint32_t> parser.command.size):
                return -1
            return parser.command.body - c_at
        # Gathering repeats the checks of the batch.
        parser.command.mpub.index = 0
        parser.command.mpub.at = 4
        return parser.command.body + 4 - c_at

    cdef void _keep_words(self, const Command *command) noexcept:
        """Keeps the words of the line that follow the topic."""
        cdef int at = command_id_at(command.kind)
        self.defer_ms = self.id_bytes = 0
        if command.kind == CMD_DMPUB:
            parse_decimal(command.args[2], command.arg_bytes[2], &self.defer_ms)
        if command.argc > at and command.arg_bytes[at] <= MOST_ID_BYTES:
            self.id_bytes = command.arg_bytes[at]
            memcpy(self.id, command.args[at], <size_t> self.id_bytes)

    cdef bint _expect(self, uint32_t size) noexcept:
        self.partial = message_new(NO_ID, 0, NULL, size)
        self.have = 0
        self.guessed = False
        return self.partial is not NULL

    cdef int gather(self, Parser parser, const char *c_at, Py_ssize_t length, Py_ssize_t *used) noexcept:
        cdef Py_ssize_t part, at = 0
        cdef int event = PARSE_MORE
        while True:
            if self.partial is NULL:
                event = mpub_event(mpub_next(&parser.command.mpub, c_at + at, length - at, parser.max_message,
                                             parser.limit))
                if event != PARSE_BODY:
                    break
                if not self._expect(<uint32_t> parser.command.mpub.value):
                    event = PARSE_NO_MEMORY
                    break
                at += SIZE_BYTES
            part = min(length - at, <Py_ssize_t> (<int64_t> self.partial.size - self.have))
            memcpy(self.partial.body + self.have, c_at + at, <size_t> part)
            self.have += part
            at += part
            if self.have < self.partial.size:
                event = PARSE_MORE
                break
            if fifo_push(&self.batch.gathered, self.partial, 0, 0) < 0:
                event = PARSE_NO_MEMORY
                break
            self.last_size = self.partial.size
            self.partial = NULL
            if parser.command.kind == CMD_PUB or mpub_passed(&parser.command.mpub):
                parser.body_ended()
                event = PARSE_BODY
                break
        used[0] = at
        return event

    cdef Py_ssize_t missing(self, Parser parser, uint32_t least) noexcept:
        if self.partial is NULL:
            if parser.command.kind == CMD_PUB or self.last_size < least or not self._expect(self.last_size):
                return 0
            self.have = -SIZE_BYTES
            self.guessed = True
        return <Py_ssize_t> (<int64_t> self.partial.size - self.have)

    cdef int came(self, Parser parser, Py_ssize_t length) noexcept:
        self.have += length
        if self.guessed and self.have >= 0:
            if (mpub_next(&parser.command.mpub, self.partial.body - SIZE_BYTES, SIZE_BYTES, parser.max_message,
                          parser.limit) != MPUB_WHOLE
                    or <uint32_t> parser.command.mpub.value != self.partial.size):
                return CAME_WRONG
            self.guessed = False
        return CAME_WHOLE if self.have == self.partial.size else CAME_PART

    cdef Message *take_wrong(self) noexcept:
        cdef Message *wrong = self.partial
        self.partial = NULL
        self.last_size = 0
        self.guessed = False
        return wrong

    cdef char *into(self) noexcept:
        return self.partial.body + self.have

    cdef Py_ssize_t body_bytes(self, Parser parser, Py_ssize_t kept) noexcept:
        if parser.command.kind == CMD_PUB:
            return self.have
        return <Py_ssize_t> parser.command.mpub.at + (kept if self.partial is NULL else SIZE_BYTES + self.have)

    cdef void drop(self, Slicer slicer) noexcept:
        if self.partial is not NULL:
            message_unref(self.partial)
            self.partial = NULL
        if self.batch is not None:
            self.batch.end_with(PUT_EXITING, slicer)
            self.batch = None
