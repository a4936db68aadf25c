"""IDENTIFY and AUTH, and permission checks."""

from libc.stdint cimport int64_t

from nsqc.tcp.guard cimport GUARD_ALLOWED, GUARD_DENIED, GUARD_FAILED, GUARD_FIRST, GUARD_TWICE, GUARD_WAITS, Guard
from nsqc.tcp.outcome cimport DONE, ERROR, REPLY, UPGRADE, WAITS, WANTS_BODY
from nsqc.tcp.refusals cimport arg, quoted, without_grant, wrong_state
from nsqc.tcp.session cimport STATE_INIT, Session
from nsqc.wire.parser cimport Command, Parser

from nsqc.tcp import identify
from nsqc.tcp.errors import ClientError

cdef enum:
    GREETING_BYTES = 65536  # of IDENTIFY and AUTH: anyone may send these, so nobody needs to be able to send megabytes


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
    if session.is_topic(c_topic, length):
        return DONE
    topic = c_topic[:length]
    return refused(session, session.guard.decided(topic), name, topic, b"")


cdef int permit_publish(Session session, bytes name, Command *command, bint known) except -1:
    cdef int permitted
    if not known or session.guard.until_ns <= session.broker.clock.monotonic:
        permitted = permit(session, name, arg(command, 1), b"")
        if permitted != DONE:
            return permitted
    return charge(session, name, 1, command.size) if session.guard.metered else DONE


cdef int permit(Session session, bytes name, bytes topic, bytes channel) except -1:
    """DONE: the client may subscribe to the channel, or publish if channel is empty. Otherwise the result to return."""
    cdef int verdict = session.guard.check(session.broker.clock.monotonic, topic, channel)
    return WAITS if verdict == GUARD_WAITS else refused(session, verdict, name, topic, channel)


cdef int refused(Session session, int verdict, bytes name, bytes topic, bytes channel) except -1:
    """DONE if the verdict is GUARD_ALLOWED; otherwise the error."""
    if verdict == GUARD_ALLOWED:
        return DONE
    target = topic.decode() + ("/" + channel.decode() if channel else "")
    if verdict == GUARD_FIRST or verdict == GUARD_FAILED:
        return without_grant(session, name, target, verdict == GUARD_FAILED)
    session.record(name.decode(), target, "E_UNAUTHORIZED")
    return session.fail(b"E_UNAUTHORIZED AUTH failed for " + name + b" on " + quoted(topic) + b" " + quoted(channel))
