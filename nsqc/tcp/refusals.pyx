"""Errors of several commands: exceptions, refused or incomplete bodies, invalid words in a line.

The texts are nsqd's: clients match on them.
"""

from libc.stdint cimport int64_t

from nsqc.tcp.largebody cimport SIZE_BYTES
from nsqc.tcp.outcome cimport DONE, ERROR, FATAL
from nsqc.tcp.session cimport Session
from nsqc.wire.mpub cimport mpub_bytes
from nsqc.wire.parser cimport (AT_BODY, AT_LINE, AT_SIZE, CMD_AUTH, CMD_CLS, CMD_DMPUB, CMD_DPUB, CMD_FIN, CMD_IDENTIFY,
                               CMD_MPUB, CMD_PUB, CMD_RDY, CMD_REQ, CMD_SUB, CMD_TOUCH, PARSE_BAD_COUNT,
                               PARSE_BAD_MESSAGE_SIZE, PARSE_BAD_SIZE, PARSE_MESSAGE_TOO_BIG, PARSE_NO_MEMORY,
                               PARSE_TOO_BIG, Command, Parser, command_is_batch, command_publishes)

import os
import traceback

from nsqc.broker.refusals import DRAINING, INVALID, QUOTA, UNAUTHORIZED, LimitReached, of_exception
from nsqc.tcp.identify import quote

NAMES = {CMD_PUB: b"PUB", CMD_MPUB: b"MPUB", CMD_DPUB: b"DPUB", CMD_DMPUB: b"DMPUB", CMD_IDENTIFY: b"IDENTIFY",
         CMD_AUTH: b"AUTH", CMD_SUB: b"SUB", CMD_FIN: b"FIN", CMD_REQ: b"REQ", CMD_TOUCH: b"TOUCH", CMD_RDY: b"RDY",
         CMD_CLS: b"CLS"}


# ---------------------------------------------------------------------- words of a line

cdef bytes arg(Command *command, int index):
    return command.args[index][:command.arg_bytes[index]]


cdef bytes quoted(bytes name):
    """As printed by Go's %q."""
    return quote(name).encode()


cdef int too_few(Session session, bytes command, bytes word) except -1:
    return session.fail(b"E_INVALID " + command + b" insufficient number of " + word)


cdef int wrong_state(Session session, bytes command) except -1:
    return session.fail(b"E_INVALID cannot " + command + b" in current state")


cdef int bad_topic(Session session, bytes name, Command *command) except -1:
    return session.fail(b"E_BAD_TOPIC " + name + b" topic name " + quoted(arg(command, 1)) + b" is not valid")


# ---------------------------------------------------------------------- exceptions

cdef bytes name_of(int kind):
    return NAMES[kind]


cdef int raised(Session session, Command *command, error) noexcept:
    """Answers a command that has raised. Otherwise the client would mistake the next answer for it."""
    cdef int kind = command.kind
    try:
        if command_publishes(kind):
            session.broker.refused(of_exception(error))
        session.fail(failure(NAMES.get(kind), kind == CMD_RDY or kind == CMD_CLS, error))
        if not isinstance(error, (OSError, MemoryError, LimitReached)):
            session.log.error("[%s] - %s", session.address, "".join(traceback.format_exception(error)))
    except BaseException:
        return session.fail(b"E_INVALID command failed")
    # These affect one message, and their errors leave the connection open.
    return ERROR if kind == CMD_FIN or kind == CMD_REQ or kind == CMD_TOUCH else FATAL


cdef bytes failure(bytes name, bint without_code, error):
    """The error of a command that has raised."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno)
    elif isinstance(error, LimitReached):
        reason = str(error)
    else:
        reason = "out of memory" if isinstance(error, MemoryError) else "internal error"
    if name is None:
        return b"E_INVALID command failed " + reason.encode()
    return (b"E_INVALID " if without_code else b"E_" + name + b"_FAILED ") + name + b" failed " + reason.encode()


cdef int draining(Session session, bytes name) except -1:
    return session.fail(b"E_" + name + b"_FAILED " + name + b" failed draining")


cdef int no_memory(Session session, bytes name) except -1:
    return session.fail(b"E_" + name + b"_FAILED " + name + b" failed out of memory")


cdef bytes write_failed(int kind, int error):
    name = NAMES[kind]
    return b"E_%b_FAILED %b failed %b" % (name, name, os.strerror(error).encode())


cdef object refusal_of(bytes error):
    if error.endswith(b" failed draining"):
        return DRAINING
    if error.startswith((b"E_AUTH_FIRST", b"E_AUTH_FAILED", b"E_UNAUTHORIZED")):
        return UNAUTHORIZED
    if b"_FAILED" in error and b" failed quota: " in error:
        return QUOTA
    invalid = (b"E_BAD_TOPIC", b"E_BAD_MESSAGE", b"E_BAD_BODY", b"E_INVALID")
    return INVALID if error.startswith(invalid) else None


# ---------------------------------------------------------------------- bodies

cdef int without_grant(Session session, bytes name, str target, bint failed) except -1:
    if failed:
        session.record(name.decode(), target, "E_AUTH_FAILED")
        return session.fail(b"E_AUTH_FAILED AUTH failed" + session.guard.reason)
    session.record(name.decode(), target, "E_AUTH_FIRST")
    return session.fail(b"E_AUTH_FIRST AUTH required before " + name)


cdef int refuse(Session session, Parser parser, int event) noexcept:
    try:
        return refused(session, parser, event)
    except BaseException as error:
        return raised(session, &parser.command, error)


cdef int refused(Session session, Parser parser, int event) except -1:
    cdef Command *command = &parser.command
    cdef bytes name = NAMES[command.kind]
    cdef bint message = command.kind == CMD_PUB or command.kind == CMD_DPUB
    cdef bytes code = b"E_BAD_MESSAGE " if message else b"E_BAD_BODY "
    cdef bytes what = b"message " if message else b""
    cdef int64_t limit
    if event == PARSE_BAD_SIZE:
        return session.fail(code + name + b" invalid " + what + b"body size %d" % command.size)
    if event == PARSE_TOO_BIG:
        limit = session.limits.max_msg_size if message else session.limits.max_body_size
        if command.size <= limit and message:
            return without_grant(session, name, arg(command, 1).decode(), len(session.guard.reason) > 0)
        if command.size <= limit:
            limit = parser.limit
        return session.fail(code + name + (b" message" if message else b" body")
                            + b" too big %d > %d" % (command.size, limit))
    if event == PARSE_NO_MEMORY:
        return no_memory(session, name)
    if event == PARSE_BAD_COUNT:
        return session.fail(b"E_BAD_BODY %b invalid message count %d" % (name, command.mpub.value))
    if event == PARSE_BAD_MESSAGE_SIZE:
        return session.fail(b"E_BAD_MESSAGE %b invalid message(%d) body size %d"
                            % (name, command.mpub.index, command.mpub.value))
    if event == PARSE_MESSAGE_TOO_BIG:
        return session.fail(b"E_BAD_MESSAGE %b message too big %d > %d"
                            % (name, command.mpub.value, parser.max_message))
    return session.fail(b"E_BAD_BODY %b body too big %d > %d"
                        % (name, mpub_bytes(&command.mpub) + command.mpub.value, parser.limit))


cdef int cut_short(Session session, Parser parser, Py_ssize_t have) noexcept:
    try:
        return unfinished(session, parser, have)
    except BaseException as error:
        return raised(session, &parser.command, error)


cdef int unfinished(Session session, Parser parser, Py_ssize_t have) except -1:
    cdef Command *command = &parser.command
    cdef bytes name, code
    if parser.state == AT_LINE:
        return DONE
    name = NAMES[command.kind]
    code = b"E_BAD_MESSAGE " if command.kind == CMD_PUB or command.kind == CMD_DPUB else b"E_BAD_BODY "
    if command.kind == CMD_PUB or command.kind == CMD_DPUB:
        name += b" failed to read message body"
    elif command_is_batch(command.kind) and parser.state == AT_BODY:
        return cut_short_mpub(session, command, name, have - parser.line_bytes - SIZE_BYTES)
    else:
        name += b" failed to read body"
    if parser.state == AT_SIZE:
        name += b" size"
    return session.fail(code + name)


cdef int cut_short_mpub(Session session, Command *command, bytes name, Py_ssize_t have) except -1:
    if command.mpub.count == 0:
        return session.fail(b"E_BAD_BODY " + name + b" failed to read message count")
    if have < command.mpub.at + SIZE_BYTES:
        return session.fail(b"E_BAD_MESSAGE %b failed to read message(%d) body size" % (name, command.mpub.index))
    return session.fail(b"E_BAD_MESSAGE " + name + b" failed to read message body")
