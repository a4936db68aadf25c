# Errors of several commands. Functions that return an int set session.reply and return FATAL unless noted otherwise.

from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Command, Parser

cdef bytes arg(Command *command, int index)
cdef bytes quoted(bytes name)
cdef bytes name_of(int kind)        # of a command, by its CommandKind
cdef int too_few(Session session, bytes command, bytes word) except -1
cdef int wrong_state(Session session, bytes command) except -1
cdef int bad_topic(Session session, bytes name, Command *command) except -1
cdef int draining(Session session, bytes name) except -1
cdef int no_memory(Session session, bytes name) except -1
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
# The client has no grant: its AUTH has failed, or is missing. target: for the audit log.
cdef int without_grant(Session session, bytes name, str target, bint failed) except -1
