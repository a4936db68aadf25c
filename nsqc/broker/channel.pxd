# A channel: what waits (backlog), what is out to consumers (in flight), what waits for its time (deferred).
#
# Invariants: every Delivery of in_flight lies in timeouts, and the other way round; those of deferred lie in delayed
# only. A consumer is in the ring of ready ones exactly while wants_more(consumer) holds.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from nsqc.broker.consumer cimport Consumer
from nsqc.broker.latency cimport LatencyWindow
from nsqc.store.backlog cimport Backlog
from nsqc.store.clock cimport Clock
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport Heap
from nsqc.store.idmap cimport IdMap
from nsqc.store.message cimport Message

cdef enum ClaimResult:
    CLAIMED
    NOT_IN_FLIGHT           # the channel knows no such message in flight
    NOT_OWNER               # it is in flight to another client


cdef class Channel:
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint exiting          # deleted or closed: takes nothing more
    cdef readonly uint64_t message_count
    cdef readonly uint64_t requeue_count
    cdef readonly uint64_t timeout_count
    cdef readonly dict clients          # id to Consumer, in order of arrival
    cdef readonly LatencyWindow latency  # None where no percentiles are asked for
    cdef Backlog backlog
    cdef IdMap in_flight
    cdef Heap timeouts                  # deliveries in flight, by time-out
    cdef Heap delayed                   # deferred deliveries, by due time
    cdef Clock clock
    cdef int64_t max_msg_timeout_ns
    cdef int64_t max_consumers          # 0: no limit
    cdef PyObject *c_ready              # the consumer to serve next; NULL: none is ready
    cdef bint retrying                  # the backlog could not be read; resume() is on its way
    cdef int64_t alarm_ns               # monotonic time the scanner will call expire() at; NEVER: none
    cdef object scanner                 # arm(channel, deadline_ns), later(channel)
    cdef object topic                   # told of: write failures and healing, the last client leaving

    # From the topic. Both take the reference; attempts are those made before, with a queue that was handed over.
    cdef int put(self, Message *message, uint32_t attempts) noexcept        # PutResult
    cdef void put_deferred(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    # From a consumer.
    cdef int finish(self, Consumer consumer, const char *c_id) noexcept     # ClaimResult, here and below
    cdef int requeue(self, Consumer consumer, const char *c_id, int64_t delay_ns) noexcept
    cdef int touch(self, Consumer consumer, const char *c_id) noexcept
    cdef void update(self, Consumer consumer) noexcept      # after anything that wants_more() looks at has changed
    cdef void pump(self) noexcept                           # delivers what waits to who is ready

    # taken: what Backlog.done() wants when the message is finished or waits again
    cdef void _deliver(self, Message *message, uint32_t attempts, int64_t taken) noexcept
    cdef void _put_back(self, Message *message, uint32_t attempts, int64_t taken) noexcept
    cdef void _recycle(self, Delivery *delivery) noexcept
    cdef void _defer(self, Message *message, uint32_t attempts, int64_t delay_ns, int64_t taken) noexcept
    cdef int _exit(self) except -1
    cdef int _write_back(self, Delivery *delivery) except -1
    cdef Delivery *_claim(self, Consumer consumer, const char *c_id, int *result) noexcept
    cdef void _release(self, Delivery *delivery) noexcept
    cdef void _arm(self) noexcept
    cdef void _link(self, Consumer consumer) noexcept
    cdef void _unlink(self, Consumer consumer) noexcept
