# A V2 client: negotiated settings, permissions, counters.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t
from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel
from nsqc.broker.consumer cimport Consumer
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.broker.topic cimport Topic
from nsqc.tcp.guard cimport Guard
from nsqc.tcp.link cimport Link
from nsqc.tcp.outbox cimport Outbox

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
    cdef readonly object address        # "host:port" of the peer
    cdef object client_id, hostname, user_agent  # str
    cdef dict topology                  # the client's location: fields of ClientStats; empty: not used
    cdef double connected               # seconds since 1970
    cdef bint locked                    # TLS is required and missing: only IDENTIFY is allowed
    cdef object layers                  # with UPGRADE, from IDENTIFY to the upgrade: nsqc.tcp.identify.Layers
    cdef object tls                     # nsqc.tcp.secured.Secured; None: not encrypted
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
    cdef int asked_sample_rate
    cdef bint publish_ids               # publishes may have an id as their last word
    cdef bint deferred_batches          # it may use DMPUB
    # The topic last published to, to avoid lookups; its count is folded into `published` when the topic changes.
    cdef Topic topic
    cdef uint64_t topic_count
    cdef OpenBatch batch                # the multi-publish being received or published; reused
    cdef bint awaits_room               # the unpublished batch is retried: see publishwait.pxd
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
