# A client, from its channel's view: an abstract base, which nsqc.tcp.session.Session implements.
#
# A consumer takes messages while ready_count > in_flight, unless it is blocked (its socket is full) or closed.
# After a change of any of these, call Channel.update(consumer).

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint64_t
from nsqc.store.message cimport Message

cdef enum:
    DISTANCES = 3


cdef class Consumer:
    cdef readonly int64_t id                # unique within the daemon
    cdef readonly int64_t ready_count       # messages in flight to this client; written by the channel
    cdef readonly int64_t in_flight         # messages out to this client; written by the channel
    cdef readonly uint64_t message_count    # delivered
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef int64_t msg_timeout_ns
    cdef readonly int sample_rate           # percentage of messages it wants; 0: all
    # Distance from the daemon, one of DISTANCES: 0 the same zone, 1 the same region, 2 neither. Without topology-aware
    # consumption all are 0. Fixed once the channel has it.
    cdef readonly int distance
    cdef bint blocked                       # its socket accepts no more for now
    cdef readonly bint closed               # the client is gone, or about to go

    # Position in the channel's ring of ready consumers (see ring.pxd); borrowed references, written by the channel.
    cdef bint listed
    cdef PyObject *c_next
    cdef PyObject *c_previous

    # Sends one message. It borrows the message.
    cdef void deliver(self, Message *message, uint16_t attempts) noexcept
    # The channel is ending: close the connection.
    cdef void dismiss(self) noexcept


cdef inline bint wants_more(Consumer consumer) noexcept:
    return consumer.ready_count > consumer.in_flight and not consumer.blocked and not consumer.closed
