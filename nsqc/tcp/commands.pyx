"""The commands of protocol V2, one function for each, and their refusals. See the .pxd."""

import os
import time
import traceback
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport ENOMEM, ESHUTDOWN
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from nsqc.broker.channel cimport CLAIMED, NOT_OWNER, Channel, unlikely
from nsqc.broker.leaving cimport NO_ROOM, give_up
from nsqc.broker.refusals import (
    DRAINING,
    INVALID,
    QUOTA,
    UNAUTHORIZED,
    LimitReached,
    draining_text,
    of_exception,
    text_of,
)
from nsqc.broker.topic cimport (FULL, NO_SPACE, Once, OpenBatch, Topic, once_dropped, once_new, room_helps, room_leave,
                                room_wait)
from nsqc.store.backlog cimport (PUT_DISK, PUT_EXITING, PUT_FULL, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE,
                                 PUT_RUNNING, PUT_TAKEN)
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.publishids cimport is_publish_id
from nsqc.tcp.intake cimport LargeBody
from nsqc.tcp import identify
from nsqc.tcp.identify import ClientError, quote
from nsqc.tcp.session cimport (DONE, ERROR, FATAL, GUARD_ALLOWED, GUARD_DENIED, GUARD_FAILED, GUARD_FIRST,
                               GUARD_TWICE, GUARD_WAITS, OK, OK_ON_COMMIT, OK_ON_RUNNING, REPLY, SLICE_OVER,
                               STATE_CLOSING, STATE_INIT, STATE_SUBSCRIBED, UPGRADE, WAITS, WANTS_BODY, Guard,
                               Session)
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.parser cimport (AT_BODY, AT_LINE, AT_SIZE, CMD_AUTH, CMD_CLS, CMD_DEAD, CMD_DMPUB, CMD_DPUB, CMD_FIN,
                               CMD_IDENTIFY, CMD_MPUB, CMD_NOP, CMD_PUB, CMD_RDY, CMD_REQ, CMD_SUB, CMD_TOUCH,
                               PARSE_BAD_COUNT, PARSE_BAD_MESSAGE_SIZE, PARSE_BAD_SIZE, PARSE_MESSAGE_TOO_BIG,
                               PARSE_NO_MEMORY, PARSE_TOO_BIG, Command, Parser, command_id_at, command_is_batch,
                               command_publishes, mpub_bytes, name_is_valid, parse_decimal)


# ====================================================================== refusals
# Errors of several commands: exceptions, refused or incomplete bodies, invalid words in a line.
#
# The texts are nsqd's: clients match on them.

NAMES = {CMD_PUB: b"PUB", CMD_MPUB: b"MPUB", CMD_DPUB: b"DPUB", CMD_DMPUB: b"DMPUB", CMD_IDENTIFY: b"IDENTIFY",
         CMD_AUTH: b"AUTH", CMD_SUB: b"SUB", CMD_FIN: b"FIN", CMD_REQ: b"REQ", CMD_TOUCH: b"TOUCH", CMD_DEAD: b"DEAD",
         CMD_RDY: b"RDY", CMD_CLS: b"CLS"}


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


cdef int bad_topic(Session session, bytes name, Command *command, int at=1) except -1:
    return session.fail(b"E_BAD_TOPIC " + name + b" topic name " + quoted(arg(command, at)) + b" is not valid")


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
    return ERROR if CMD_FIN <= kind <= CMD_DEAD and kind != CMD_RDY else FATAL


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
    return session.fail(b"E_%b_FAILED %b failed %b" % (name, name, draining_text().encode()))


cdef int no_memory(Session session, bytes name) except -1:
    return session.fail(b"E_" + name + b"_FAILED " + name + b" failed out of memory")


cdef bytes write_failed(int kind, int error):
    name = NAMES[kind]
    return b"E_%b_FAILED %b failed %b" % (name, name, text_of(error).encode())


cdef object refusal_of(bytes error):
    if error.endswith(b" failed " + draining_text().encode()):
        return DRAINING
    if error.startswith((b"E_AUTH_FIRST", b"E_AUTH_FAILED", b"E_UNAUTHORIZED")):
        return UNAUTHORIZED
    if b"_FAILED" in error and b" failed quota: " in error:
        return QUOTA
    invalid = (b"E_BAD_TOPIC", b"E_BAD_MESSAGE", b"E_BAD_BODY", b"E_INVALID")
    return INVALID if error.startswith(invalid) else None


# ---------------------------------------------------------------------- bodies

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
            return denied(session, GUARD_FAILED if session.guard.reason else GUARD_FIRST, name, arg(command, 1), b"")
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


# ====================================================================== identity

cdef enum:
    GREETING_BYTES = 65536  # of IDENTIFY and AUTH, which need no permission: no megabytes from strangers


cdef int begin_identify(Session session, Parser parser) except -1:
    if session.state != STATE_INIT:
        return wrong_state(session, b"IDENTIFY")
    parser.expect_body(min(session.limits.max_body_size, GREETING_BYTES))
    return WANTS_BODY


cdef int do_identify(Session session, Command *command) except -1:
    try:
        agreement = identify.negotiate(command.body[:command.size], session.options, session.current(), session.log,
                                       session.address)
    except ClientError as error:
        return session.fail(str(error).encode())
    session.apply(agreement)
    return REPLY if session.layers is None else UPGRADE


cdef int begin_auth(Session session, Parser parser) except -1:
    if session.state != STATE_INIT:
        return wrong_state(session, b"AUTH")
    if parser.command.argc != 1:
        return session.fail(b"E_INVALID AUTH invalid number of parameters")
    parser.expect_body(min(session.limits.max_body_size, GREETING_BYTES))
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
        session.record("AUTH", "", "E_AUTH_FAILED")
        return session.fail(b"E_AUTH_FAILED AUTH failed" + guard.reason)
    if verdict == GUARD_DENIED:
        session.record("AUTH", "", "E_UNAUTHORIZED")
        return session.fail(b"E_UNAUTHORIZED AUTH no authorizations found")
    session.reply = identify.auth_answer(guard.grant)
    return REPLY


# ---------------------------------------------------------------------- permissions

cdef int charge(Session session, bytes name, int64_t messages, int64_t size) except -1:
    """Counts a publish of a client with a quota. DONE: it may publish; its next command may have to wait."""
    seconds, refusal = session.guard.account.publish(messages, size)
    if refusal:
        session.reply = b"E_" + name + b"_FAILED " + name + b" failed quota: " + refusal.encode()
        session.record(name.decode(), "", "quota: " + refusal)
        return ERROR
    session.delay_s = seconds
    return DONE


cdef int permit_still(Session session, bytes name, const char *c_topic, Py_ssize_t length) except -1:
    """Whether a client whose PUB or MPUB was permitted at the start of its body may still publish: the last answer
    decides."""
    if session.is_topic(c_topic, length):
        return DONE
    topic = c_topic[:length]
    return denied(session, session.guard.decided(topic), name, topic, b"")


cdef int permit_publish(Session session, bytes name, Command *command, bint known) except -1:
    """With a guard. DONE: the client may publish, and its quota allows it; otherwise the command's result. known: the
    command names the topic last published to."""
    cdef int permitted
    if not known or session.guard.until_ns <= session.broker.clock.monotonic:
        permitted = permit(session, name, arg(command, 1), b"")
        if permitted != DONE:
            return permitted
    return charge(session, name, 1, command.size) if session.guard.metered else DONE


cdef int permit(Session session, bytes name, bytes topic, bytes channel) except -1:
    """DONE: the client may subscribe to the channel, or publish if channel is empty. Otherwise the result to return."""
    cdef int verdict = session.guard.check(session.broker.clock.monotonic, topic, channel)
    return WAITS if verdict == GUARD_WAITS else denied(session, verdict, name, topic, channel)


cdef int denied(Session session, int verdict, bytes name, bytes topic, bytes channel) except -1:
    """DONE if the verdict is GUARD_ALLOWED; otherwise the error."""
    if verdict == GUARD_ALLOWED:
        return DONE
    target = topic.decode() + ("/" + channel.decode() if channel else "")
    if verdict == GUARD_FIRST:
        session.record(name.decode(), target, "E_AUTH_FIRST")
        return session.fail(b"E_AUTH_FIRST AUTH required before " + name)
    if verdict == GUARD_FAILED:
        session.record(name.decode(), target, "E_AUTH_FAILED")
        return session.fail(b"E_AUTH_FAILED AUTH failed" + session.guard.reason)
    session.record(name.decode(), target, "E_UNAUTHORIZED")
    return session.fail(b"E_UNAUTHORIZED AUTH failed for " + name + b" on " + quoted(topic) + b" " + quoted(channel))


# ====================================================================== waiting publishes

cdef bint begin_wait(Session session) noexcept:
    """A refusal left all of session.batch unpublished. Returns whether it waits: then session.awaits_room is set."""
    cdef OpenBatch batch = session.batch
    cdef Topic topic = batch.topic
    cdef int64_t now
    if topic.exiting:
        batch.result = PUT_EXITING
        return False
    if session.limits.publish_wait_ns == 0 or not room_helps(topic, batch.result):
        return False
    now = monotonic_ns()
    if session.room_until_ns == 0:
        session.room_until_ns = now + session.limits.publish_wait_ns
    if now >= session.room_until_ns:
        return False
    batch.result = PUT_MEMORY
    batch.open = session.awaits_room = True
    return True


cdef void wait_for_room(Session session, LoopWork publisher) noexcept:
    room_wait(session.batch.topic, publisher, session.room_until_ns)


cdef void end_wait(Session session, LoopWork publisher) noexcept:
    if session.awaits_room:
        room_leave(session.batch.topic, publisher)
        session.room_until_ns = 1


# ====================================================================== commands
# The V2 commands: each acts on the session and the broker, returns an Outcome, and writes to no socket.
#
# Checks come in nsqd's order, and errors in its words: clients match on both.

cdef enum:
    NS_PER_MS = 1000000


cdef int run_line(Session session, Parser parser) noexcept:
    try:
        return line(session, parser)
    except BaseException as error:
        return raised(session, &parser.command, error)


cdef int run_body(Session session, Parser parser) noexcept:
    try:
        return body(session, parser)
    except BaseException as error:
        return raised(session, &parser.command, error)


cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept:
    try:
        return gathered(session, &parser.command, body)
    except BaseException as error:
        return raised(session, &parser.command, error)


cdef int continue_mpub(Session session, Parser parser) noexcept:
    try:
        return publish_batch(session, &parser.command)
    except BaseException as error:
        if session.batch.topic is not None:
            once_dropped(session.batch.topic, &session.batch.once)
        session.batch.end_with(PUT_EXITING, session.broker.slicer)
        return raised(session, &parser.command, error)


cdef int line(Session session, Parser parser) except -1:
    """Dispatches a command's line. The most used commands come first."""
    cdef int kind = parser.command.kind
    if session.locked and kind != CMD_IDENTIFY:
        return session.fail(b"E_INVALID cannot " + arg(&parser.command, 0) + b" in current state (TLS required)")
    if kind == CMD_FIN:
        return do_fin(session, &parser.command)
    if kind == CMD_PUB:
        return begin_pub(session, parser, b"PUB", 2)
    if kind == CMD_MPUB:
        return begin_mpub(session, parser, b"MPUB")
    if kind == CMD_RDY:
        return do_rdy(session, &parser.command)
    if kind == CMD_REQ:
        return do_req(session, &parser.command)
    if kind == CMD_TOUCH:
        return do_touch(session, &parser.command)
    if kind == CMD_DEAD and session.dead_letters:
        return do_dead(session, &parser.command)
    if kind == CMD_DPUB:
        return begin_pub(session, parser, b"DPUB", 3)
    if kind == CMD_DMPUB and session.deferred_batches:
        return begin_dmpub(session, parser)
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
        return do_pub(session, &parser.command, b"PUB", 0)
    if command_is_batch(kind):
        return do_mpub(session, &parser.command)
    if kind == CMD_DPUB:
        return do_pub(session, &parser.command, b"DPUB", delay_of(&parser.command))
    if kind == CMD_IDENTIFY:
        return do_identify(session, &parser.command)
    return do_auth(session, &parser.command)


cdef bint is_topic(Command *command) noexcept:
    return name_is_valid(command.args[1], command.arg_bytes[1])


# ---------------------------------------------------------------------- consuming

cdef inline int message_refused(Session session, Command *command, int words) except -1:
    """DONE, or FATAL: the client may not send a command about a message now, or this one lacks words, or names none."""
    if session.state != STATE_SUBSCRIBED and session.state != STATE_CLOSING:
        return wrong_state(session, name_of(command.kind))
    if command.argc < words:
        return too_few(session, name_of(command.kind), b"params")
    if command.arg_bytes[1] != MESSAGE_ID_BYTES:
        return session.fail(b"E_INVALID invalid message ID")
    return DONE


cdef inline int ended(Session session, Command *command, int result) except -1:
    """After a command that ends a delivery, with its ClaimResult."""
    if result != CLAIMED:
        return not_claimed(session, command, result)
    session.pump_due = True
    return DONE


cdef int do_fin(Session session, Command *command) except -1:
    if message_refused(session, command, 2) != DONE:
        return FATAL
    return ended(session, command, session.channel.finish(session, command.args[1]))


cdef int do_req(Session session, Command *command) except -1:
    cdef int64_t delay_ns = 0
    if message_refused(session, command, 3) != DONE:
        return FATAL
    if not parse_decimal(command.args[2], command.arg_bytes[2], &delay_ns):
        return session.fail(b"E_INVALID REQ could not parse timeout " + arg(command, 2))
    delay_ns = min(max(0, as_ns(delay_ns)), session.limits.max_req_timeout_ns)
    return ended(session, command, session.channel.requeue(session, command.args[1], delay_ns))


cdef int do_touch(Session session, Command *command) except -1:
    cdef int64_t delivered_with = session.msg_timeout_ns
    cdef int result
    if message_refused(session, command, 2) != DONE:
        return FATAL
    session.msg_timeout_ns = session.touch_timeout_ns
    result = session.channel.touch(session, command.args[1])
    session.msg_timeout_ns = delivered_with
    return DONE if result == CLAIMED else not_claimed(session, command, result)


cdef int do_dead(Session session, Command *command) except -1:
    cdef int verdict, result
    cdef bytes topic, origin
    if message_refused(session, command, 4) != DONE:
        return FATAL
    if not name_is_valid(command.args[2], command.arg_bytes[2]):
        return bad_topic(session, b"DEAD", command, 2)
    if not name_is_valid(command.args[3], command.arg_bytes[3]):
        return session.fail(b"E_INVALID DEAD reason " + quoted(arg(command, 3)) + b" is not valid")
    topic, origin = arg(command, 2), session.channel.owner.name
    if session.guard is not None:
        verdict = session.guard.check(session.broker.clock.monotonic, topic, b"")
        if verdict == GUARD_WAITS:
            return WAITS
        if verdict != GUARD_ALLOWED:
            session.record("DEAD", topic.decode(), "E_DEAD_FAILED")
            return not_done(session, command, b"publishing to topic " + topic + b" is not permitted")
    if topic == origin or session.broker.leads_to(topic, origin):
        return not_done(session, command, b"dead letters of topic " + topic + b" come back to " + origin)
    result = give_up(session.channel, session, command.args[1], topic, arg(command, 3))
    if result == NO_ROOM:
        return not_done(session, command, b"too many dead letters wait")
    return ended(session, command, result)


cdef int not_claimed(Session session, Command *command, int result) except -1:
    return not_done(session, command, b"client does not own message" if result == NOT_OWNER else b"ID not in flight")


cdef int not_done(Session session, Command *command, bytes reason) except -1:
    """A command about a message has no effect; the connection stays open."""
    cdef bytes name = name_of(command.kind)
    session.reply = b"E_%b_FAILED %b %b failed %b" % (name, name, arg(command, 1), reason)
    return ERROR


cdef int64_t as_ns(int64_t milliseconds) noexcept:
    """Milliseconds as nanoseconds. Overflow wraps around, as with nsqd."""
    return <int64_t> (<uint64_t> milliseconds * NS_PER_MS)


cdef int do_rdy(Session session, Command *command) except -1:
    cdef int64_t count = 1
    cdef bint backs_off
    if session.state == STATE_CLOSING:
        session.log.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", session.address)
        return DONE
    if session.state != STATE_SUBSCRIBED:
        return wrong_state(session, b"RDY")
    if command.argc > 1 and not parse_decimal(command.args[1], command.arg_bytes[1], &count):
        return session.fail(b"E_INVALID RDY could not parse count " + arg(command, 1))
    if count < 0 or count > session.limits.max_rdy_count:
        return session.fail(b"E_INVALID RDY count %d out of range 0-%d" % (count, session.limits.max_rdy_count))
    # A word after the count, which nsqd ignores: why it is low.
    backs_off = command.argc > 2 and command.arg_bytes[2] == 7 and memcmp(command.args[2], b"backoff", 7) == 0
    if count and not backs_off:
        session.idle_since = 0
    elif backs_off != session.backs_off or session.ready_count and not backs_off:
        session.idle_since = time.time()
    session.backs_off = backs_off
    session.ready_count = count
    session.channel.update(session)
    session.pump_due = True
    return DONE


cdef int do_sub(Session session, Command *command) except -1:
    cdef Topic topic
    cdef Channel channel
    cdef int permitted
    cdef bint is_new
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
    if session.broker.draining:
        return draining(session, b"SUB")
    topic = session.broker.find(command.args[1], command.arg_bytes[1])
    if topic is None:
        topic = session.make_topic(arg(command, 1))
    is_new = topic.channel(arg(command, 2)) is None
    if is_new:
        session.created += 1
    channel = session.broker.get_channel(topic, arg(command, 2))
    if is_new:
        session.record("CREATE", (topic.name + b"/" + channel.name).decode(), "OK")
    if not channel.add_client(session):
        return session.fail(b"E_SUB_FAILED SUB failed consumers for %b:%b exceeds limit of %d"
                            % (topic.name, channel.name, channel.max_consumers))
    session.channel = channel
    session.state = STATE_SUBSCRIBED
    if session.guard is not None:
        session.guard.topic, session.guard.channel = topic.name, channel.name
    return OK


cdef int do_cls(Session session) except -1:
    if session.state != STATE_SUBSCRIBED:
        return wrong_state(session, b"CLS")
    session.ready_count = 0
    session.state = STATE_CLOSING
    session.channel.update(session)
    session.reply = b"CLOSE_WAIT"
    return REPLY


# ---------------------------------------------------------------------- publishing

cdef inline bint has_id(Session session, const Command *command) noexcept:
    """Whether the publish has an id: the last word of its command."""
    return session.publish_ids and command.argc > command_id_at(command.kind)


cdef int id_refused(Session session, Command *command) except -1:
    """DONE, or FATAL: the publish's id is invalid."""
    cdef int at = command_id_at(command.kind)
    if is_publish_id(command.args[at], command.arg_bytes[at]):
        return DONE
    return session.fail(b"E_INVALID %b publish id %b is not 1 to 64 printable ASCII characters"
                        % (name_of(command.kind), quoted(arg(command, at))))


cdef int64_t message_limit(Session session) except -1:
    """Of the bodies of PUB and DPUB. 0: the client has no grant of any kind, so its bodies are not read; refused()
    answers once it has sent their size."""
    if session.guard is not None and session.guard.grant is None and not session.guard.present():
        return 0
    return session.limits.max_msg_size


cdef int begin_pub(Session session, Parser parser, bytes name, int words) except -1:
    """PUB, or DPUB with one more word, its delay."""
    cdef Command *command = &parser.command
    if command.argc < words:
        return too_few(session, name, b"parameters")
    if not is_topic(command):
        return bad_topic(session, name, command)
    if command.kind == CMD_DPUB and delay_refused(session, command, name) != DONE:
        return FATAL
    if has_id(session, command) and id_refused(session, command) != DONE:
        return FATAL
    parser.expect_body(message_limit(session))
    return WANTS_BODY


cdef int do_pub(Session session, Command *command, bytes name, uint32_t defer_ms) except -1:
    """PUB, or DPUB: the name."""
    cdef Topic topic
    cdef int permitted, result
    cdef bint known
    if session.broker.draining:
        return draining(session, name)
    known = session.is_topic(command.args[1], command.arg_bytes[1])
    if session.guard is not None and not session.guard.passes(known, session.broker.clock.monotonic):
        permitted = permit_publish(session, name, command, known)
        if permitted != DONE:
            return permitted
    topic = session.topic if known else session.publish_topic(command.args[1], command.arg_bytes[1])
    if has_id(session, command) and topic.ids is not None:
        return publish_once(session, topic, command, defer_ms)
    result = topic.publish_bytes(command.body, <uint32_t> command.size, defer_ms)
    if unlikely(result >= PUT_FULL):
        return full(session, topic, command, result)
    return published(session, result, 1, name)


cdef int publish_once(Session session, Topic topic, Command *command, uint32_t defer_ms) except -1:
    """PUB or DPUB with an id, to a topic that remembers ids."""
    cdef int result, at = command_id_at(command.kind)
    cdef Once once
    once_new(topic, &once, command.args[at], command.arg_bytes[at])
    result = topic.publish_once(&once, command.body, <uint32_t> command.size, defer_ms)
    if result >= PUT_FULL:
        return full(session, topic, command, result)
    if result != PUT_TAKEN:
        return published(session, result, 1, name_of(command.kind))
    begin_batch_of_one(session, topic, command)
    return SLICE_OVER


cdef void begin_batch_of_one(Session session, Topic topic, Command *command) noexcept:
    """For a message that waits: its body follows its size, like a message of a batch."""
    cdef int at = command_id_at(command.kind)
    begin_sized(session, topic, delay_of(command) if command.kind == CMD_DPUB else 0, command,
                command.body - SIZE_BYTES, command.size + SIZE_BYTES, 1)
    session.batch.open = True
    if has_id(session, command):
        once_new(topic, &session.batch.once, command.args[at], command.arg_bytes[at])


cdef void begin_sized(Session session, Topic topic, uint32_t defer_ms, const Command *command, const char *c_from,
                      int64_t length, int64_t count) noexcept:
    """Positions of the batch start at the line: the connection moves it if the batch takes several slices."""
    cdef const char *c_line = command.args[0]
    session.room_until_ns = 0
    session.batch.begin(topic, defer_ms)
    session.batch.take_sized(c_line, c_from - c_line, c_from - c_line + length, count)


cdef int begin_mpub(Session session, Parser parser, bytes name) except -1:
    cdef int permitted
    cdef bint known
    if parser.command.argc < 2:
        return too_few(session, name, b"parameters")
    if not is_topic(&parser.command):
        # nsqd writes the code twice.
        return bad_topic(session, b"E_BAD_TOPIC " + name, &parser.command)
    if has_id(session, &parser.command) and id_refused(session, &parser.command) != DONE:
        return FATAL
    if session.broker.draining:
        return draining(session, name)
    known = session.is_topic(parser.command.args[1], parser.command.arg_bytes[1])
    if session.guard is not None and (not known or session.guard.until_ns <= session.broker.clock.monotonic):
        # Before the body, as with nsqd.
        permitted = permit(session, name, arg(&parser.command, 1), b"")
        if permitted != DONE:
            return permitted
    session.publish_topic(parser.command.args[1], parser.command.arg_bytes[1])
    parser.expect_body(session.limits.max_body_size)
    return WANTS_BODY


cdef int begin_dmpub(Session session, Parser parser) except -1:
    if parser.command.argc < 3:
        return too_few(session, b"DMPUB", b"parameters")
    if is_topic(&parser.command) and delay_refused(session, &parser.command, b"DMPUB") != DONE:
        return FATAL
    return begin_mpub(session, parser, b"DMPUB")


cdef int do_mpub(Session session, Command *command) except -1:
    cdef int permitted, at = command_id_at(command.kind)
    cdef Topic topic
    if session.broker.draining:
        return draining(session, name_of(command.kind))
    if session.guard is not None:
        permitted = permit_still(session, name_of(command.kind), command.args[1], command.arg_bytes[1])
        if permitted == DONE and session.guard.metered:
            permitted = charge(session, name_of(command.kind), command.mpub.count, mpub_bytes(&command.mpub))
        if permitted != DONE:
            return permitted
    topic = session.publish_topic(command.args[1], command.arg_bytes[1])
    # The messages follow their count.
    begin_sized(session, topic, delay_of(command) if command.kind == CMD_DMPUB else 0, command,
                command.body + SIZE_BYTES, command.mpub.at - SIZE_BYTES, command.mpub.count)
    if has_id(session, command):
        once_new(topic, &session.batch.once, command.args[at], command.arg_bytes[at])
    return publish_batch(session, command)


cdef int gathered(Session session, Command *command, LargeBody body) except -1:
    cdef Topic topic
    cdef int permitted
    if session.broker.draining:
        return draining(session, name_of(command.kind))
    if session.guard is not None:
        permitted = permit_still(session, name_of(command.kind), body.topic_name, body.topic_bytes)
        if permitted != DONE:
            return permitted
    topic = session.publish_topic(body.topic_name, body.topic_bytes)
    session.room_until_ns = 0
    session.batch.begin(topic, <uint32_t> (as_ns(body.defer_ms) // NS_PER_MS))
    session.batch.take_gathered()
    if session.publish_ids and body.id_bytes:
        once_new(topic, &session.batch.once, body.id, body.id_bytes)
    return publish_batch(session, command)


cdef int publish_batch(Session session, Command *command) except -1:
    cdef OpenBatch batch = session.batch
    cdef Topic topic = batch.topic
    cdef bint untouched = not batch.admitted
    if session.awaits_room and session.broker.draining:
        session.awaits_room = False
        batch.end_with(PUT_EXITING, session.broker.slicer)
        batch.topic = None
        return draining(session, name_of(command.kind))
    session.awaits_room = False
    if not topic.publish_slice(batch):
        return SLICE_OVER
    if batch.result >= PUT_FULL and untouched and begin_wait(session):
        return SLICE_OVER
    batch.end_with(batch.result, topic.slicer)
    batch.topic = None
    if session.topic is not topic:
        # Permissions were checked again meanwhile, which forgets the topic.
        session.publish_topic(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name))
    return published(session, batch.result, command.mpub.count if command_is_batch(command.kind) else 1,
                     name_of(command.kind))


cdef int delay_refused(Session session, Command *command, bytes name) except -1:
    """DONE, or FATAL: the word after the topic is not a valid delay."""
    cdef int64_t delay_ms = 0
    if not parse_decimal(command.args[2], command.arg_bytes[2], &delay_ms):
        return session.fail(b"E_INVALID " + name + b" could not parse timeout " + arg(command, 2))
    if not 0 <= as_ns(delay_ms) <= session.limits.max_req_timeout_ns:
        return session.fail(b"E_INVALID %b timeout %d out of range 0-%d"
                            % (name, <object> delay_ms & 0xFFFFFFFFFFFFFFFF,
                               session.limits.max_req_timeout_ns // NS_PER_MS))
    return DONE


cdef uint32_t delay_of(Command *command) noexcept:
    """In milliseconds."""
    cdef int64_t delay_ms = 0
    parse_decimal(command.args[2], command.arg_bytes[2], &delay_ms)
    return <uint32_t> (as_ns(delay_ms) // NS_PER_MS)


cdef int full(Session session, Topic topic, Command *command, int result) except -1:
    """No room for a single message: it may wait for some."""
    if session.limits.publish_wait_ns == 0:
        return not_published(session, result, name_of(command.kind))
    begin_batch_of_one(session, topic, command)
    return publish_batch(session, command)


cdef int published(Session session, int result, int64_t count, bytes name) except -1:
    if result > PUT_DISK:
        return not_published(session, result, name)
    session.topic_count += <uint32_t> count
    return OK_ON_COMMIT if result == PUT_DISK else OK


cdef int not_published(Session session, int result, bytes name) except -1:
    """The result of a refused publish, or of a duplicate."""
    if result == PUT_NO_MEMORY:
        session.topic.refused(ENOMEM)
        return no_memory(session, name)
    if result == PUT_EXITING:
        session.topic.refused(ESHUTDOWN)
        return session.fail(b"E_" + name + b"_FAILED " + name + b" failed exiting")
    if result == PUT_NO_SPACE or result == PUT_FULL:
        failure = NO_SPACE if result == PUT_NO_SPACE else FULL
        session.topic.refused(failure)
        return session.fail(b"E_%b_FAILED %b failed %b" % (name, name, session.topic.refusal(failure).encode()))
    return OK_ON_RUNNING if result == PUT_RUNNING else OK
