# A client: identity, permissions, RDY, messages in flight.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t

from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel, Consumer
from nsqc.broker.topic cimport OpenBatch, Topic
from nsqc.store.work cimport LoopWork
from nsqc.tcp.outbox cimport Outbox


# ====================================================================== outcome
# The result of a command, and how its connection reacts. Header only.

cdef enum Outcome:
    DONE            # no answer
    OK              # the reply is OK
    OK_ON_COMMIT    # the reply is OK once the topic's collecting commit has succeeded
    OK_ON_RUNNING   # the same for the running commit
    REPLY           # session.reply is the response
    UPGRADE         # the same; then TLS or compression begins, according to session.layers
    ERROR           # session.reply is the error; the connection stays open
    FATAL           # session.reply is the error; the connection closes after it
    WANTS_BODY      # the line is valid: parser.expect_body has been called
    WAITS           # for an auth server: nothing was done; rerun the command from its line after resume()
    # A publish is unfinished: continue_mpub(), with session.batch.c_data set again, or later if session.awaits_room.
    SLICE_OVER


# ====================================================================== link
# A connection, from the view of its parts: the session, the intake and the upgrade hold a Link and call upward through
# it. nsqc.tcp.connection.Connection implements it; the parts know nothing else of that class.

cdef class Link(LoopWork):
    # Runs the commands in these bytes; returns the number of bytes used.
    cdef Py_ssize_t consume(self, const char *c_from, Py_ssize_t length) except -1
    cdef void after_input(self) noexcept                    # after commands were run
    cdef int refuse_stream(self, bytes error) except -1     # the codec cannot decode the input
    cdef void input_ended(self) noexcept                    # the client sends no more
    cdef void resume(self) noexcept                         # the answer that a command WAITS for has arrived
    # IDENTIFY has set session.heartbeat_ms and, if first, pace_ms.
    cdef int heartbeats_agreed(self, bint first) except -1
    cdef void say_ok(self) noexcept
    cdef void upgraded(self) noexcept                       # the agreed TLS and compression are in place
    cdef void end(self) noexcept                            # closes after sending the collected output
    cdef void fail(self, error) noexcept                    # an exception left the connection in an unknown state
    cdef void lost(self, error) noexcept                    # the transport is gone


# ====================================================================== guard
# The permissions of one client, from auth servers or an access file: the last answer, and the decisions derived from
# it. The access file may grant something to a client that has not sent AUTH: an implicit grant.
#
# A command that needs an answer gets GUARD_WAITS, and its connection waits (see Link.resume). After the answer, good or
# bad, the command is rerun from its start; for this run the answer counts even if it has expired.

cdef enum Verdict:
    GUARD_ALLOWED
    GUARD_DENIED        # the answer does not cover this; for AUTH: it covers nothing
    GUARD_WAITS         # a question is pending
    GUARD_FAILED        # no server gave a good answer
    GUARD_FIRST         # AUTH must come first: nothing permits this without it
    GUARD_TWICE         # AUTH has already succeeded


cdef class Guard:
    cdef object authority           # nsqc.access.authority.Authority
    cdef object client              # nsqc.tcp.session.Session; None after its end
    cdef object log                 # nsqc.log.Log
    cdef bytes secret               # of AUTH
    cdef readonly object grant      # the last good answer: nsqc.access.authority.Grant; None before
    cdef str user                   # for the audit log, also after its grant was revoked; empty before
    cdef int64_t until_ns           # monotonic: the next question is due then
    cdef int64_t expires_ns         # monotonic: when the answer expires
    cdef int64_t grace_until_ns     # monotonic: with all servers down, an expired answer counts until then; 0: no
    cdef int64_t grace_ns           # auth-grace
    cdef object asking              # the task of the pending question; None: none
    cdef bint waiting               # the client's command waits for it
    cdef bint settled               # it was answered; the command that waited comes next
    cdef bint failed                # without a good answer
    cdef bint implicit              # the grant is that of a client without AUTH
    cdef object account             # nsqc.access.keeper.Account of the grant: counts this connection; None: no limits
    cdef bint metered               # publishes count
    cdef bytes reason               # why the last question failed, for the client; empty: no answer
    cdef bytes topic, channel       # subscription; None before
    cdef dict decisions             # (topic, channel) to whether the answer covers it; channel b"": publishing

    # Whether a publish needs no question and is not counted: it is for the topic last published to (known), and the
    # answer is still valid.
    cdef inline bint passes(self, bint known, int64_t now_ns) noexcept:
        return known and self.until_ns > now_ns and not self.metered
    cdef bint authed(self) noexcept
    cdef bint present(self) except -1
    cdef bint use(self, grant) except -1
    cdef int authenticate(self, bytes secret) except -1
    cdef int check(self, int64_t now_ns, bytes topic, bytes channel) except -1
    cdef int decided(self, bytes topic) except -1
    cdef int _wait(self) except -1
    cdef int _ask(self) except -1
    cdef int _decide(self, bytes topic, bytes channel) except -1


# ====================================================================== session
# A V2 client: negotiated settings, permissions, counters.

cdef enum SessionState:     # numbers as in nsqd's statistics
    STATE_INIT = 0
    STATE_SUBSCRIBED = 3
    STATE_CLOSING = 4


cdef class Limits:
    # From the options; fixed for the life of a connection.
    cdef int64_t max_msg_size
    cdef int64_t max_body_size
    cdef int64_t max_rdy_count
    cdef int64_t max_req_timeout_ns
    cdef int64_t stall_ns               # a command must be complete within this
    cdef int64_t publish_wait_ns        # longest wait for room after a refusal by a rule; 0: none
    cdef Py_ssize_t max_buffered_bytes  # of unread output; above that, reading pauses, too


cdef class Session(Consumer):
    cdef Broker broker
    cdef Limits limits
    cdef object options                 # nsqc.options.declared.Options as of the connection's start
    cdef object log                     # nsqc.log.Log
    cdef Link link                      # the Connection; None once it is gone
    cdef Outbox outbox
    cdef int state                      # SessionState
    cdef Channel channel                # None until SUB
    cdef bint pump_due                  # the channel may have more to deliver
    cdef bint backs_off                 # by the client's own word, of its last RDY
    cdef double idle_since              # when RDY fell to 0, or the client first sent 0; s since 1970; 0: neither
    cdef dict shown                     # fields of ClientStats, from IDENTIFY
    cdef double connected               # seconds since 1970
    cdef bint locked                    # TLS is required and missing: only IDENTIFY is allowed
    cdef object layers                  # with UPGRADE, from IDENTIFY to the upgrade: nsqc.tcp.identify.Layers
    cdef object tls                     # nsqc.tcp.identify.Secured; None: not encrypted
    cdef object compression             # a codec's name; empty: none
    # Settings from IDENTIFY. As with nsqd, a client may repeat it until it subscribes. Deliveries use the first one:
    # pace_ms, msg_timeout_ns, sample_rate, distance and the outbox's timeout. All else uses the last one: replies,
    # statistics, deadlines, TOUCH.
    cdef bint identified
    cdef int64_t pace_ms                # between heartbeats; 0: none are sent
    cdef int64_t heartbeat_ms           # the client must be heard within twice this time; 0: never
    cdef int64_t output_buffer_size
    cdef int64_t output_buffer_timeout_ms
    cdef int64_t touch_timeout_ns
    cdef bint publish_ids               # publishes may have an id as their last word
    cdef bint deferred_batches          # it may use DMPUB
    cdef bint dead_letters              # it may use DEAD
    # The topic last published to, to avoid lookups; its count is folded into `published` when the topic changes.
    cdef Topic topic
    cdef uint64_t topic_count
    cdef OpenBatch batch                # the multi-publish being received or published; reused
    cdef bint awaits_room               # the unpublished batch is retried: see commands.pxd
    cdef int64_t room_until_ns          # monotonic: deadline for that; 0: has not waited yet
    cdef int created                    # topics and channels since the connection last checked, see Connection.pace
    cdef double delay_s                 # wait imposed on the client after a publish
    cdef object audit                   # nsqc.access.audit.Audit; None: nothing is recorded
    cdef dict published                 # topic name to count of messages, in order of first publishes
    cdef Guard guard                    # None: everything is permitted; otherwise it permitted `topic`
    cdef bytes reply                    # to the last command, with REPLY, UPGRADE, ERROR and FATAL

    cdef bint is_topic(self, const char *c_name, Py_ssize_t length) noexcept    # the one last published to
    cdef Topic publish_topic(self, const char *c_name, Py_ssize_t length)
    cdef Topic make_topic(self, bytes name)             # one that does not exist yet
    cdef int fail(self, bytes error) noexcept           # returns FATAL
    cdef int record(self, str call, str target, str result) except -1   # to the audit log
    cdef int apply(self, agreement) except -1           # of IDENTIFY: nsqc.tcp.identify.Agreement
