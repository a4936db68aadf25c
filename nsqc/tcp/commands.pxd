# The commands of protocol V2, one function for each, and their refusals.

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.topic cimport OpenBatch
from nsqc.store.message cimport Message
from nsqc.store.work cimport LoopWork, Slicer
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Command, Parser


# ====================================================================== large bodies
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


# ====================================================================== refusals
# Errors of several commands. Functions that return an int set session.reply and return FATAL unless noted otherwise.

cdef bytes arg(Command *command, int index)
cdef int draining(Session session, bytes name) except -1
# The error of a reply whose commit has failed; kind: CommandKind.
cdef bytes write_failed(int kind, int error)

# The nsqc.broker.refusals reason for a publish's error; None: its topic has counted it.
cdef object refusal_of(bytes error)

# None of these lets an exception escape: it becomes the error of the command.

# A command has raised; FATAL, or ERROR if nsqd leaves the connection open.
cdef int raised(Session session, Command *command, error) noexcept
# The parser refuses the body; event is its ParseEvent.
cdef int refuse(Session session, Parser parser, int event) noexcept
# The connection ends or stalls within a command, after `have` of its bytes: FATAL and the missing part, or DONE between
# two commands.
cdef int cut_short(Session session, Parser parser, Py_ssize_t have) noexcept


# ====================================================================== identity
# Commands that identify a client, and its permission checks. Results are Outcomes.


# ====================================================================== waiting publishes
# --publish-wait: a publish that a rule refuses waits for room. Meanwhile its connection reads nothing, so later
# commands wait, too; deliveries and heartbeats continue.

# With session.awaits_room: the slicer runs the publisher later.
cdef void wait_for_room(Session session, LoopWork publisher) noexcept
# The connection ends: the publisher stops waiting, and the next attempt of its publish is the last.
cdef void end_wait(Session session, LoopWork publisher) noexcept


# ====================================================================== commands
# One function for each V2 command, and the switches over them. Results are Outcomes.
#
# None of these lets an exception escape: it becomes the error of the command.

# After the line of a command; finishes commands without a body.
cdef int run_line(Session session, Parser parser) noexcept
# After the body.
cdef int run_body(Session session, Parser parser) noexcept
# After all messages of a PUB or MPUB are gathered.
cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept
# After SLICE_OVER.
cdef int continue_mpub(Session session, Parser parser) noexcept
