# The commands of protocol V2, one function for each, and their refusals.


from nsqc.store.work cimport LoopWork
from nsqc.tcp.intake cimport LargeBody
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Command, Parser


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
