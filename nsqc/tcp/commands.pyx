"""What each V2 command does. It acts on session and broker and returns an outcome; it writes to no socket.

Checks come in the original's order, and errors in its words: clients match on both.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from nsqc.broker.channel cimport CLAIMED, NOT_OWNER, Channel
from nsqc.broker.topic cimport Topic
from nsqc.store.fifo cimport Entry, fifo_pop
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY
from nsqc.tcp.guard cimport (GUARD_ALLOWED, GUARD_DENIED, GUARD_FAILED, GUARD_FIRST, GUARD_TWICE, GUARD_WAITS,
                             Guard)
from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.session cimport STATE_CLOSING, STATE_INIT, STATE_SUBSCRIBED
from nsqc.wire.const cimport MESSAGE_ID_BYTES
from nsqc.wire.mpub cimport mpub_bytes
from nsqc.wire.names cimport name_is_valid
from nsqc.wire.parser cimport (AT_BODY, AT_LINE, AT_SIZE, CMD_AUTH, CMD_CLS, CMD_DPUB, CMD_FIN, CMD_IDENTIFY, CMD_MPUB,
                               CMD_NOP, CMD_PUB, CMD_RDY, CMD_REQ, CMD_SUB, CMD_TOUCH, PARSE_BAD_COUNT,
                               PARSE_BAD_MESSAGE_SIZE, PARSE_BAD_SIZE, PARSE_MESSAGE_TOO_BIG, PARSE_NO_MEMORY,
                               PARSE_TOO_BIG, parse_decimal)

import os
import traceback

from nsqc.tcp.errors import ClientError
from nsqc.tcp import identify

NAMES = {CMD_PUB: b"PUB", CMD_MPUB: b"MPUB", CMD_DPUB: b"DPUB", CMD_IDENTIFY: b"IDENTIFY", CMD_AUTH: b"AUTH",
         CMD_SUB: b"SUB", CMD_FIN: b"FIN", CMD_REQ: b"REQ", CMD_TOUCH: b"TOUCH", CMD_RDY: b"RDY", CMD_CLS: b"CLS"}


cdef int run_line(Session session, Parser parser) noexcept:
    try:
        return line(session, parser)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int run_body(Session session, Parser parser) noexcept:
    try:
        return body(session, parser)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept:
    try:
        return gathered(session, &parser.command, body)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int go_on_mpub(Session session, Parser parser) noexcept:
    try:
        return publish_batch(session, &parser.command)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int line(Session session, Parser parser) except -1:
    """The index of commands. Those most used come first."""
    cdef int kind = parser.command.kind
    if session.locked and kind != CMD_IDENTIFY:
        return session.fail(b"E_INVALID cannot " + arg(&parser.command, 0) + b" in current state (TLS required)")
    if kind == CMD_FIN:
        return do_fin(session, &parser.command)
    if kind == CMD_PUB:
        return begin_pub(session, parser)
    if kind == CMD_MPUB:
        return begin_mpub(session, parser)
    if kind == CMD_RDY:
        return do_rdy(session, &parser.command)
    if kind == CMD_REQ:
        return do_req(session, &parser.command)
    if kind == CMD_TOUCH:
        return do_touch(session, &parser.command)
    if kind == CMD_DPUB:
        return begin_dpub(session, parser)
    if kind == CMD_NOP:
        return DONE
    if kind == CMD_SUB:
        return do_sub(session, &parser.command)
    if kind == CMD_CLS:
        return do_cls(session)
    if kind == CMD_IDENTIFY:
        return begin_identify(session, parser)
    if kind == CMD_AUTH:
        return begin_auth(session, parser)
    return session.fail(b"E_INVALID invalid command " + arg(&parser.command, 0))


cdef int body(Session session, Parser parser) except -1:
    cdef int kind = parser.command.kind
    if kind == CMD_PUB:
        return do_pub(session, &parser.command)
    if kind == CMD_MPUB:
        return do_mpub(session, &parser.command)
    if kind == CMD_DPUB:
        return do_dpub(session, &parser.command)
    if kind == CMD_IDENTIFY:
        return do_identify(session, &parser.command)
    return do_auth(session, &parser.command)


# ---------------------------------------------------------------------- what no rule has foreseen

cdef int broken(Session session, Command *command, error) noexcept:
    """A command has raised an exception: its error, so that its answer is not missing and no other taken for it."""
    cdef int kind = command.kind
    try:
        session.fail(failure(NAMES.get(kind), kind == CMD_RDY or kind == CMD_CLS, error))
        if not isinstance(error, (OSError, MemoryError)):
            session.log.error("[%s] - %s", session.address, "".join(traceback.format_exception(error)))
    except BaseException:
        return session.fail(b"E_INVALID command failed")
    # These touch one message, and their errors leave the connection open.
    return FAILED if kind == CMD_FIN or kind == CMD_REQ or kind == CMD_TOUCH else FATAL


cdef bytes failure(bytes name, bint without_code, error):
    """The error of a command that has raised."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno)
    else:
        reason = "out of memory" if isinstance(error, MemoryError) else "internal error"
    if name is None:
        return b"E_INVALID command failed " + reason.encode()
    return (b"E_INVALID " if without_code else b"E_" + name + b"_FAILED ") + name + b" failed " + reason.encode()


# ---------------------------------------------------------------------- helpers

cdef bytes arg(Command *command, int index):
    return command.args[index][:command.arg_bytes[index]]


cdef bytes quoted(bytes name):
    """A name in quotes, as the original's %q prints it."""
    return identify.quote(name).encode()


cdef bint is_topic(Command *command) noexcept:
    return name_is_valid(command.args[1], command.arg_bytes[1])


cdef int too_few(Session session, bytes command, bytes word) except -1:
    return session.fail(b"E_INVALID " + command + b" insufficient number of " + word)


cdef int wrong_state(Session session, bytes command) except -1:
    return session.fail(b"E_INVALID cannot " + command + b" in current state")


cdef bint consumes(Session session) noexcept:
    return session.state == STATE_SUBSCRIBED or session.state == STATE_CLOSING


# ---------------------------------------------------------------------- consuming

cdef int do_fin(Session session, Command *command) except -1:
    cdef int result
    if not consumes(session):
        return wrong_state(session, b"FIN")
    if command.argc < 2:
        return too_few(session, b"FIN", b"params")
    if command.arg_bytes[1] != MESSAGE_ID_BYTES:
        return session.fail(b"E_INVALID invalid message ID")
    result = session.channel.finish(session, command.args[1])
    if result != CLAIMED:
        return not_claimed(session, b"FIN", command, result)
    session.pump_due = True
    return DONE


cdef int do_req(Session session, Command *command) except -1:
    cdef int64_t delay_ns = 0
    cdef int result
    if not consumes(session):
        return wrong_state(session, b"REQ")
    if command.argc < 3:
        return too_few(session, b"REQ", b"params")
    if command.arg_bytes[1] != MESSAGE_ID_BYTES:
        return session.fail(b"E_INVALID invalid message ID")
    if not parse_decimal(command.args[2], command.arg_bytes[2], &delay_ns):
        return session.fail(b"E_INVALID REQ could not parse timeout " + arg(command, 2))
    delay_ns = min(max(0, as_ns(delay_ns)), session.limits.max_req_timeout_ns)
    result = session.channel.requeue(session, command.args[1], delay_ns)
    if result != CLAIMED:
        return not_claimed(session, b"REQ", command, result)
    session.pump_due = True
    return DONE


cdef int do_touch(Session session, Command *command) except -1:
    cdef int64_t delivered_with = session.msg_timeout_ns
    cdef int result
    if not consumes(session):
        return wrong_state(session, b"TOUCH")
    if command.argc < 2:
        return too_few(session, b"TOUCH", b"params")
    if command.arg_bytes[1] != MESSAGE_ID_BYTES:
        return session.fail(b"E_INVALID invalid message ID")
    session.msg_timeout_ns = session.touch_timeout_ns
    result = session.channel.touch(session, command.args[1])
    session.msg_timeout_ns = delivered_with
    return DONE if result == CLAIMED else not_claimed(session, b"TOUCH", command, result)


cdef int not_claimed(Session session, bytes name, Command *command, int result) except -1:
    session.error = (b"E_" + name + b"_FAILED " + name + b" " + arg(command, 1) + b" failed "
                     + (b"client does not own message" if result == NOT_OWNER else b"ID not in flight"))
    return FAILED


cdef int64_t as_ns(int64_t milliseconds) noexcept:
    """Milliseconds as nanoseconds. Too large numbers wrap around, as with the original."""
    return <int64_t> (<uint64_t> milliseconds * 1000000)


cdef int do_rdy(Session session, Command *command) except -1:
    cdef int64_t count = 1
    if session.state == STATE_CLOSING:
        session.log.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", session.address)
        return DONE
    if session.state != STATE_SUBSCRIBED:
        return wrong_state(session, b"RDY")
    if command.argc > 1 and not parse_decimal(command.args[1], command.arg_bytes[1], &count):
        return session.fail(b"E_INVALID RDY could not parse count " + arg(command, 1))
    if count < 0 or count > session.limits.max_rdy_count:
        return session.fail(b"E_INVALID RDY count %d out of range 0-%d" % (count, session.limits.max_rdy_count))
    session.ready_count = count
    session.channel.update(session)
    session.pump_due = True
    return DONE


cdef int do_sub(Session session, Command *command) except -1:
    cdef Topic topic
    cdef Channel channel
    cdef int permitted
    if session.state != STATE_INIT:
        return wrong_state(session, b"SUB")
    if session.heartbeat_ms <= 0:
        return session.fail(b"E_INVALID cannot SUB with heartbeats disabled")
    if command.argc < 3:
        return too_few(session, b"SUB", b"parameters")
    if not is_topic(command):
        return session.fail(b"E_BAD_TOPIC SUB topic name " + quoted(arg(command, 1)) + b" is not valid")
    if not name_is_valid(command.args[2], command.arg_bytes[2]):
        return session.fail(b"E_BAD_CHANNEL SUB channel name " + quoted(arg(command, 2)) + b" is not valid")
    if session.guard is not None:
        permitted = permit(session, b"SUB", arg(command, 1), arg(command, 2))
        if permitted != DONE:
            return permitted
    topic = session.broker.get_topic(arg(command, 1))
    channel = topic.get_channel(arg(command, 2))
    if not channel.add_client(session):
        return session.fail(b"E_SUB_FAILED SUB failed consumers for %b:%b exceeds limit of %d"
                            % (topic.name, channel.name, channel.max_consumers))
    session.channel = channel
    session.state = STATE_SUBSCRIBED
    return ANSWER_OK


cdef int do_cls(Session session) except -1:
    if session.state != STATE_SUBSCRIBED:
        return wrong_state(session, b"CLS")
    session.ready_count = 0
    session.state = STATE_CLOSING
    session.channel.update(session)
    session.error = b"CLOSE_WAIT"
    return ANSWER


# ---------------------------------------------------------------------- publishing

cdef int bad_topic(Session session, bytes name, Command *command) except -1:
    return session.fail(b"E_BAD_TOPIC " + name + b" topic name " + quoted(arg(command, 1)) + b" is not valid")


cdef int begin_pub(Session session, Parser parser) except -1:
    if parser.command.argc < 2:
        return too_few(session, b"PUB", b"parameters")
    if not is_topic(&parser.command):
        return bad_topic(session, b"PUB", &parser.command)
    parser.expect_body(session.limits.max_msg_size)
    return WANTS_BODY


cdef int do_pub(Session session, Command *command) except -1:
    cdef Topic topic
    cdef int permitted
    if session.guard is not None:
        permitted = permit_publish(session, b"PUB", command)
        if permitted != DONE:
            return permitted
    topic = session.publish_topic(command.args[1], command.arg_bytes[1])
    return published(session, topic.publish_bytes(command.body, <uint32_t> command.size, 0), 1, b"PUB")


cdef int begin_mpub(Session session, Parser parser) except -1:
    cdef int permitted
    if parser.command.argc < 2:
        return too_few(session, b"MPUB", b"parameters")
    if not is_topic(&parser.command):
        # The code stands twice, as with the original.
        return bad_topic(session, b"E_BAD_TOPIC MPUB", &parser.command)
    if session.guard is not None:
        # Before the body, as with the original.
        permitted = permit_publish(session, b"MPUB", &parser.command)
        if permitted != DONE:
            return permitted
    session.publish_topic(parser.command.args[1], parser.command.arg_bytes[1])
    parser.expect_body(session.limits.max_body_size)
    return WANTS_BODY


cdef int do_mpub(Session session, Command *command) except -1:
    session.batch_topic = session.publish_topic(command.args[1], command.arg_bytes[1])
    session.batch.c_at = command.body + 4
    session.batch.gathered = NULL
    session.batch.left = command.mpub.count
    session.batch.result = PUT_MEMORY
    return publish_batch(session, command)


cdef int gathered(Session session, Command *command, LargeBody body) except -1:
    cdef Topic topic = session.publish_topic(body.topic_name, body.topic_bytes)
    cdef Entry entry
    if command.kind == CMD_PUB:
        fifo_pop(&body.whole, &entry)
        return published(session, topic.publish_gathered(entry.message), 1, b"PUB")
    session.batch_topic = topic
    session.batch.gathered = &body.whole
    session.batch.left = command.mpub.count
    session.batch.result = PUT_MEMORY
    return publish_batch(session, command)


cdef int publish_batch(Session session, Command *command) except -1:
    if not session.batch_topic.publish_slice(&session.batch):
        return GOES_ON
    if session.topic is not session.batch_topic:
        # Permissions were looked up again meanwhile, which forgets the topic.
        session.publish_topic(PyBytes_AS_STRING(session.batch_topic.name), PyBytes_GET_SIZE(session.batch_topic.name))
    return published(session, session.batch.result, command.mpub.count, b"MPUB")


cdef int begin_dpub(Session session, Parser parser) except -1:
    cdef Command *command = &parser.command
    cdef int64_t delay_ms = 0
    if command.argc < 3:
        return too_few(session, b"DPUB", b"parameters")
    if not is_topic(command):
        return bad_topic(session, b"DPUB", command)
    if not parse_decimal(command.args[2], command.arg_bytes[2], &delay_ms):
        return session.fail(b"E_INVALID DPUB could not parse timeout " + arg(command, 2))
    if not 0 <= as_ns(delay_ms) <= session.limits.max_req_timeout_ns:
        return session.fail(b"E_INVALID DPUB timeout %d out of range 0-%d"
                            % (<object> delay_ms & 0xFFFFFFFFFFFFFFFF, session.limits.max_req_timeout_ns // 1000000))
    parser.expect_body(session.limits.max_msg_size)
    return WANTS_BODY


cdef int do_dpub(Session session, Command *command) except -1:
    cdef Topic topic
    cdef int64_t delay_ms = 0
    cdef int permitted
    if session.guard is not None:
        permitted = permit_publish(session, b"DPUB", command)
        if permitted != DONE:
            return permitted
    topic = session.publish_topic(command.args[1], command.arg_bytes[1])
    parse_decimal(command.args[2], command.arg_bytes[2], &delay_ms)
    return published(session, topic.publish_bytes(command.body, <uint32_t> command.size,
                                                  <uint32_t> (as_ns(delay_ms) // 1000000)), 1, b"DPUB")


cdef int published(Session session, int result, int64_t count, bytes name) except -1:
    if result == PUT_NO_MEMORY:
        return session.fail(b"E_" + name + b"_FAILED " + name + b" failed out of memory")
    if result == PUT_EXITING:
        return session.fail(b"E_" + name + b"_FAILED " + name + b" failed exiting")
    session.topic_count += <uint32_t> count
    return SPILLED if result == PUT_DISK else ANSWER_OK


# ---------------------------------------------------------------------- identity

cdef int begin_identify(Session session, Parser parser) except -1:
    if session.state != STATE_INIT:
        return wrong_state(session, b"IDENTIFY")
    parser.expect_body(session.limits.max_body_size)
    return WANTS_BODY


cdef int do_identify(Session session, Command *command) except -1:
    try:
        session.error = identify.negotiate(session, command.body[:command.size])
    except ClientError as error:
        return session.fail(str(error).encode())
    return ANSWER if session.upgrade is None else UPGRADE


cdef int begin_auth(Session session, Parser parser) except -1:
    if session.state != STATE_INIT:
        return wrong_state(session, b"AUTH")
    if parser.command.argc != 1:
        return session.fail(b"E_INVALID AUTH invalid number of parameters")
    parser.expect_body(session.limits.max_body_size)
    return WANTS_BODY


cdef int do_auth(Session session, Command *command) except -1:
    cdef Guard guard = session.guard
    cdef int verdict
    if guard is None:
        return session.fail(b"E_AUTH_DISABLED AUTH disabled")
    verdict = guard.authenticate(command.body[:command.size])
    if verdict == GUARD_WAITS:
        return WAITS
    if verdict == GUARD_TWICE:
        return session.fail(b"E_INVALID AUTH already set")
    if verdict == GUARD_FAILED:
        return session.fail(b"E_AUTH_FAILED AUTH failed")
    if verdict == GUARD_DENIED:
        return session.fail(b"E_UNAUTHORIZED AUTH no authorizations found")
    session.error = identify.auth_answer(guard.grant)
    return ANSWER


# ---------------------------------------------------------------------- permissions

cdef int permit_publish(Session session, bytes name, Command *command) except -1:
    """DONE: the client may. Otherwise what the command returns."""
    if (session.guard.until_ns > session.broker.clock.monotonic
            and session.is_topic(command.args[1], command.arg_bytes[1])):
        return DONE
    return permit(session, name, arg(command, 1), b"")


cdef int permit(Session session, bytes name, bytes topic, bytes channel) except -1:
    """DONE: the client may subscribe to the channel, or publish where channel is empty. Otherwise what to return."""
    cdef int verdict = session.guard.check(session.broker.clock.monotonic, topic, channel)
    if verdict == GUARD_ALLOWED:
        return DONE
    if verdict == GUARD_WAITS:
        return WAITS
    if verdict == GUARD_FIRST:
        return session.fail(b"E_AUTH_FIRST AUTH required before " + name)
    if verdict == GUARD_FAILED:
        return session.fail(b"E_AUTH_FAILED AUTH failed")
    return session.fail(b"E_UNAUTHORIZED AUTH failed for " + name + b" on " + quoted(topic) + b" " + quoted(channel))


# ---------------------------------------------------------------------- bodies that are not accepted

cdef int refuse(Session session, Parser parser, int event) noexcept:
    try:
        return refused(session, parser, event)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int refused(Session session, Parser parser, int event) except -1:
    cdef Command *command = &parser.command
    cdef bytes name = NAMES[command.kind]
    cdef bint message = command.kind == CMD_PUB or command.kind == CMD_DPUB
    cdef bytes code = b"E_BAD_MESSAGE " if message else b"E_BAD_BODY "
    cdef bytes what = b"message " if message else b""
    if event == PARSE_BAD_SIZE:
        return session.fail(code + name + b" invalid " + what + b"body size %d" % command.size)
    if event == PARSE_TOO_BIG:
        return session.fail(code + name + (b" message" if message else b" body")
                            + b" too big %d > %d" % (command.size, parser.limit))
    if event == PARSE_NO_MEMORY:
        return published(session, PUT_NO_MEMORY, 0, name)
    if event == PARSE_BAD_COUNT:
        return session.fail(b"E_BAD_BODY MPUB invalid message count %d" % command.mpub.value)
    if event == PARSE_BAD_MESSAGE_SIZE:
        return session.fail(b"E_BAD_MESSAGE MPUB invalid message(%d) body size %d"
                            % (command.mpub.index, command.mpub.value))
    if event == PARSE_MESSAGE_TOO_BIG:
        return session.fail(b"E_BAD_MESSAGE MPUB message too big %d > %d" % (command.mpub.value, parser.max_message))
    return session.fail(b"E_BAD_BODY MPUB body too big %d > %d"
                        % (mpub_bytes(&command.mpub) + command.mpub.value, parser.limit))


cdef int cut_short(Session session, Parser parser, Py_ssize_t have) noexcept:
    try:
        return unfinished(session, parser, have)
    except BaseException as error:
        return broken(session, &parser.command, error)


cdef int unfinished(Session session, Parser parser, Py_ssize_t have) except -1:
    cdef Command *command = &parser.command
    cdef bytes name, code
    if parser.state == AT_LINE:
        return DONE
    name = NAMES[command.kind]
    code = b"E_BAD_MESSAGE " if command.kind == CMD_PUB or command.kind == CMD_DPUB else b"E_BAD_BODY "
    if command.kind == CMD_PUB or command.kind == CMD_DPUB:
        name += b" failed to read message body"
    elif command.kind == CMD_MPUB and parser.state == AT_BODY:
        return cut_short_mpub(session, command, have - parser.line_bytes - 4)
    else:
        name += b" failed to read body"
    if parser.state == AT_SIZE:
        name += b" size"
    return session.fail(code + name)


cdef int cut_short_mpub(Session session, Command *command, Py_ssize_t have) except -1:
    if command.mpub.count == 0:
        return session.fail(b"E_BAD_BODY MPUB failed to read message count")
    if have < command.mpub.at + 4:
        return session.fail(b"E_BAD_MESSAGE MPUB failed to read message(%d) body size" % command.mpub.index)
    return session.fail(b"E_BAD_MESSAGE MPUB failed to read message body")
