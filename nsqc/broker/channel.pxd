# A channel: what waits (backlog), what is out to consumers (in flight), what waits for its time (deferred).
#
# Invariants: every Delivery of in_flight is in timeouts, and vice versa; deferred ones are only in
# delayed. A consumer is in a ring of ready ones exactly while wants_more(consumer) holds.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from nsqc.broker.consumer cimport DISTANCES, Consumer
from nsqc.broker.latency cimport LatencyWindow
from nsqc.broker.ring cimport Ready
from nsqc.broker.seams cimport ChannelOwner
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog, BacklogOwner
from nsqc.store.clock cimport Clock
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport Heap
from nsqc.store.fifo cimport Entry
from nsqc.store.inflight cimport InFlightMap
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.message cimport Message
from nsqc.store.slices cimport Slicer
from nsqc.store.disk.unacked cimport Place

cdef enum ClaimResult:
    CLAIMED
    NOT_IN_FLIGHT           # the channel knows no such message in flight
    NOT_OWNER               # it is in flight to another client


cdef enum Timed:            # of Channel.times
    TO_DELIVERY
    TO_FINISH


cdef class Channel(BacklogOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint draining                  # the daemon drains
    cdef bint halted                    # paused or draining: nothing is delivered
    cdef readonly bint exiting          # deleted or closed: it accepts nothing more
    cdef readonly uint64_t message_count
    cdef readonly uint64_t requeue_count
    cdef readonly uint64_t timeout_count
    cdef readonly dict clients          # id to Consumer, in order of arrival
    cdef readonly LatencyWindow latency  # None: no percentiles are asked for
    # From publishing to the first delivery, and to FIN. Owned; NULL before the first message.
    cdef TwoTimes *times
    cdef Backlog backlog
    cdef Cursor cursor                  # in the topic's log; None: it has none
    cdef bint log_first                 # the log is delivered before the backlog; else after it
    cdef InFlightMap in_flight
    cdef Heap timeouts                  # deliveries in flight, by time-out
    cdef Heap delayed                   # deferred deliveries, by due time
    cdef Clock clock
    cdef int64_t max_msg_timeout_ns
    cdef int64_t max_consumers          # 0: no limit
    cdef Ready ready                    # the consumers to serve
    cdef uint64_t[DISTANCES] left       # messages delivered to consumers that have left, by distance
    cdef readonly bint stuck            # the last attempt to write the backlog failed
    cdef bint retrying                  # memory or the disk could not be used; resume() will follow
    cdef int64_t alarm_ns               # monotonic time the timers will call expire() at; NEVER: none
    cdef object timers                  # nsqc.broker.protocols.ChannelTimers
    cdef Slicer slicer                  # for what takes long
    cdef ChannelOwner owner             # the topic; None once this is deleted

    # From the topic. fits: whether put() or put_deferred() would not write a new message to disk.
    cdef bint fits(self, uint32_t defer_ms) noexcept
    # They take the reference unless the result is PUT_NO_MEMORY. attempts: earlier ones, of a queue
    # that another daemon wrote. put_copy: for a message from the topic's disk.
    cdef int put(self, Message *message, uint32_t attempts) noexcept        # PutResult
    cdef int put_deferred(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    # From a consumer.
    cdef int finish(self, Consumer consumer, const char *c_id) noexcept     # ClaimResult, here and below
    cdef int requeue(self, Consumer consumer, const char *c_id, int64_t delay_ns) noexcept
    cdef int touch(self, Consumer consumer, const char *c_id) noexcept
    cdef void update(self, Consumer consumer) noexcept      # after anything that wants_more() looks at has changed
    cdef bint pump(self) noexcept       # delivers what waits to ready consumers; False: the slice ended first

    # From the broker. The daemon drains, or not any more.
    cdef void set_draining(self, bint draining) noexcept
    # How many messages wait, how many of these on disk, how many wait for their time, and how many records of the log
    # it was not given yet; the clock must be fresh.
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef int64_t count_deferred(self) noexcept
    cdef int64_t log_lag(self) noexcept

    # From the topic: its log has grown, or more of it is visible.
    cdef void on_grown(self, int64_t records) noexcept
    cdef void set_cursor(self, Cursor cursor, bint log_first) noexcept      # None: the log is gone

    # The next message that waits; its place, or its offset in the log, is in self.place and self.offset.
    cdef Place *place
    cdef int64_t offset
    cdef bint _pop(self, Entry *entry) noexcept
    cdef bint _nothing_waits(self) noexcept
    # Reserves memory for one more delivery; False: there is none, and the message has to stay where it is.
    cdef bint _has_room(self) noexcept
    # Whether a message would go straight to a consumer; if so, there is room.
    cdef bint _goes_out(self) noexcept
    # With room: to the next ready consumer, who must exist. Takes the reference and the place.
    cdef void _deliver(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept
    cdef void _defer(self, Message *message, uint32_t attempts, int64_t delay_ns, Place *place) noexcept
    # Ends a delivery of this heap; its message is delivered again or waits. False: no memory; it stays for a while.
    cdef bint _put_back(self, Delivery *delivery, Heap *heap) noexcept
    cdef bint _wait_again(self, Delivery *delivery) noexcept    # False: no memory
    cdef bint _expire(self) noexcept    # False: the slice ended before all was done
    cdef void _try_again(self) noexcept
    cdef void _drop_all(self) noexcept
    cdef int _exit(self) except -1
    cdef int _write_back(self, Delivery *delivery) except -1
    cdef Delivery *_claim(self, Consumer consumer, const char *c_id, int *result) noexcept
    cdef void _release(self, Delivery *delivery) noexcept
    cdef void _arm(self) noexcept
