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
    cdef int64_t publish_wait_ns        # a publish that a rule refuses waits so long for room; 0: not at all
    cdef Py_ssize_t max_buffered_bytes  # of unread output; above that, input is left unread, too


cdef class Session(Consumer):
    cdef Broker broker
    cdef Limits limits
    cdef object options                 # nsqc.options.declared.Options as of the connection's start
    cdef object log                     # nsqc.log.Log
    cdef Link link                      # the Connection; None once it is gone
    cdef Outbox outbox
    cdef int state                      # SessionState
    cdef Channel channel                # None until SUB
    cdef bint pump_due                  # the channel has to look for more to deliver
    cdef readonly object address        # "host:port" of the peer
    cdef object client_id, hostname, user_agent  # str
    cdef dict topology                  # where the client is: fields of ClientStats; empty: not of interest
    cdef double connected               # seconds since 1970
    cdef bint locked                    # TLS is required and not in place: nothing but IDENTIFY is allowed
    cdef object layers                  # with UPGRADE, from IDENTIFY to the upgrade: nsqc.tcp.identify.Layers
    cdef object tls                     # nsqc.tcp.secured.Secured; None: not encrypted
    cdef object compression             # a codec's name; empty: none
    # What IDENTIFY may ask for. As with nsqd, a client may send it again until it subscribes. What is delivered, and
    # when, goes by the first: pace_ms, and msg_timeout_ns, sample_rate, distance, the timeout of the outbox. The last
    # one counts for all the rest: replies, statistics, deadlines, TOUCH.
    cdef bint identified
    cdef int64_t pace_ms                # between heartbeats; 0: none are sent
    cdef int64_t heartbeat_ms           # the client must be heard within twice this; 0: never
    cdef int64_t output_buffer_size
    cdef int64_t output_buffer_timeout_ms
    cdef int64_t touch_timeout_ns
    cdef int asked_sample_rate
    cdef bint publish_ids               # publishes may have an id as their last word
    cdef bint deferred_batches          # it may use DMPUB
    # The topic published to last, so that a publish looks nothing up; counts are folded into published when it changes.
    cdef Topic topic
    cdef uint64_t topic_count
    cdef OpenBatch batch                # the multi-publish that arrives or is published; reused
    cdef bint awaits_room               # batch, of which nothing is published, is tried again: see publishwait.pxd
    cdef int64_t room_until_ns          # monotonic: until then; 0: it has not waited yet
    cdef int created                    # topics and channels since the connection last looked, see Connection.pace
    cdef double delay_s                 # that the client has to wait after a publish
    cdef object audit                   # nsqc.tcp.protocols.Audit; None: nothing is recorded
    cdef dict published                 # topic name to messages published, in order of the first
    cdef Guard guard                    # None: everything is permitted; otherwise topic has passed it
    cdef bytes reply                    # of the last command, with REPLY, UPGRADE, ERROR and FATAL

    cdef bint is_topic(self, const char *c_name, Py_ssize_t length) noexcept    # the one published to last
    cdef Topic publish_topic(self, const char *c_name, Py_ssize_t length)
    cdef Topic make_topic(self, bytes name)             # one that does not exist
    cdef int fail(self, bytes error) noexcept           # returns FATAL
    cdef int record(self, str call, str target, str result) except -1   # in the audit log
    cdef int apply(self, agreement) except -1           # of IDENTIFY: nsqc.tcp.identify.Agreement
