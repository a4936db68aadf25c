# What topics and channels know of each other: their state, consumers, open batches.

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memchr

from nsqc.broker.rules cimport Again, ChannelRules, Lost
from nsqc.metrics.times cimport TwoTimes, times_join
from nsqc.store.backlog cimport Backlog
from nsqc.store.log.cursor cimport Cursor, Earlier, TopicPlace
from nsqc.store.log.frame cimport Buffer
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport CHECKS, Clock, broken
from nsqc.store.message cimport Entry, Fifo, GuidFactory, Heap, InFlightMap, Message, Place, fifo_pop
from nsqc.store.publishids cimport PublishId, PublishIds
from nsqc.store.work cimport Commit, DiskSpace, Slicer, StoreOwner
from nsqc.wire.hton cimport load_i32


# ====================================================================== figures
# The numbers of topics and channels: keys of /stats and columns of /metrics. A new one needs a field here, a line of
# the same name in nsqc/wire/stats.py, and its increment. Header only.

cdef struct ChannelLevels:
    int64_t depth, backend_depth, in_flight_count, deferred_count, client_count

cdef struct ChannelCounts:      # never fall
    uint64_t message_count
    uint64_t requeue_count
    uint64_t timeout_count
    uint64_t dead_letter_count
    uint64_t redriven_count
    uint64_t expired_count
    uint64_t overflow_count

cdef struct ChannelFigures:     # of /stats
    ChannelLevels levels
    ChannelCounts counts

cdef struct TopicLevels:
    int64_t depth, backend_depth

cdef struct TopicCounts:
    uint64_t message_count, message_bytes, expired_count, overflow_count

cdef struct TopicFigures:       # of /stats
    TopicLevels levels
    TopicCounts counts

cdef struct DedupeFigures:      # of a topic that remembers ids of publishes
    int64_t publish_ids, deduplicated, forgotten_ids

cdef struct LogFigures:         # of a topic with a log
    int64_t log_first_offset, log_next_offset, log_segments, log_bytes, log_damaged, log_missing

# All numbers of a topic or channel, as the cells of a metrics row. See nsqc/metrics/table.pxd.
cdef struct TopicCells:
    TopicFigures figures
    int64_t channels
    DedupeFigures dedupe
    LogFigures log

cdef struct ChannelCells:
    ChannelFigures figures
    int64_t log_lag


cdef inline void add_figures(void *c_to, const void *c_from, size_t size) noexcept nogil:
    # Adds a struct of 64-bit numbers to another one of its type. size: of the struct.
    cdef uint64_t *to = <uint64_t *> c_to
    cdef const uint64_t *figures = <const uint64_t *> c_from
    cdef size_t at
    for at in range(size // sizeof(uint64_t)):
        to[at] += figures[at]


cdef inline tuple figures_tuple(const void *c_figures, size_t size):
    # The numbers of such a struct.
    cdef const int64_t *figures = <const int64_t *> c_figures
    cdef Py_ssize_t at, count = <Py_ssize_t> (size // sizeof(int64_t))
    cdef tuple values = PyTuple_New(count)
    cdef object value
    for at in range(count):
        value = figures[at]
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, at, value)
    return values


cdef inline tuple figure_names(dict figures):
    # The names of such a struct, converted to an object, in the order of its numbers.
    cdef list names = []
    for name, value in figures.items():
        if isinstance(value, dict):
            names += figure_names(value)
        else:
            names.append(name)
    return tuple(names)


# ====================================================================== retired
# Counts of deleted channels, for a series that stands for several channels: its counters must not fall. Header only.

cdef struct Retired:
    ChannelCounts counts
    TwoTimes times


cdef inline void retire(Retired **c_retired, ChannelCounts *counts, TwoTimes *times) noexcept:
    # Adds a channel about to be deleted; times may be NULL. Without memory, a counter falls once.
    if c_retired[0] is NULL:
        c_retired[0] = <Retired *> calloc(1, sizeof(Retired))
        if c_retired[0] is NULL:
            return
    add_figures(&c_retired[0].counts, counts, sizeof(ChannelCounts))
    if times is not NULL:
        times_join(&c_retired[0].times.of[0], &times.of[0])
        times_join(&c_retired[0].times.of[1], &times.of[1])


# ====================================================================== consumer
# A client, from its channel's view: an abstract base, which nsqc.tcp.session.Session implements.
#
# A consumer takes messages while ready_count > in_flight, unless it is blocked (its socket is full) or closed.
# After a change of any of these, call Channel.update(consumer).

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

    # Position in the channel's ring of ready consumers; borrowed references, written by the channel.
    cdef bint listed
    cdef PyObject *c_next
    cdef PyObject *c_previous

    # Sends one message. It borrows the message.
    cdef void deliver(self, Message *message, uint16_t attempts) noexcept
    # The channel is ending: close the connection.
    cdef void dismiss(self) noexcept


cdef inline bint wants_more(Consumer consumer) noexcept:
    return consumer.ready_count > consumer.in_flight and not consumer.blocked and not consumer.closed


# ====================================================================== ring
# Rings of ready consumers, one for each distance: a channel serves the nearest ring round-robin, and a farther one only
# while no nearer consumer is ready. Inline, since a consumer with RDY 1 leaves and enters with each message.
#
# The current ring is kept apart: with one distance, the others are checked only when no consumer is ready. References
# are borrowed from the channel's clients.

cdef struct Ready:
    PyObject *c_next                # the consumer to serve next, in the nearest ring; NULL: none is ready
    int distance                    # of that ring
    PyObject *c_farther[DISTANCES]  # the other rings, by distance; NULL: empty


cdef inline void ring_add(PyObject **c_ring, Consumer consumer) noexcept:
    # It is served after all others.
    cdef Consumer head, tail
    if c_ring[0] is NULL:
        consumer.c_next = consumer.c_previous = <PyObject *> consumer
        c_ring[0] = <PyObject *> consumer
        return
    head = <Consumer> c_ring[0]
    tail = <Consumer> head.c_previous
    consumer.c_next = c_ring[0]
    consumer.c_previous = head.c_previous
    tail.c_next = head.c_previous = <PyObject *> consumer


cdef inline void ring_remove(PyObject **c_ring, Consumer consumer) noexcept:
    cdef Consumer before, following
    if consumer.c_next == <PyObject *> consumer:
        c_ring[0] = NULL
    else:
        before, following = <Consumer> consumer.c_previous, <Consumer> consumer.c_next
        before.c_next = consumer.c_next
        following.c_previous = consumer.c_previous
        if c_ring[0] == <PyObject *> consumer:
            c_ring[0] = consumer.c_next
    consumer.c_next = consumer.c_previous = NULL


cdef inline void ready_add(Ready *ready, Consumer consumer) noexcept:
    consumer.listed = True
    if consumer.distance > ready.distance and ready.c_next is not NULL:
        ring_add(&ready.c_farther[consumer.distance], consumer)
        return
    if consumer.distance != ready.distance:
        # The current ring, if any, joins the others.
        ready.c_farther[ready.distance] = ready.c_next
        ready.c_next = NULL
        ready.distance = consumer.distance
    ring_add(&ready.c_next, consumer)


cdef inline void ready_remove(Ready *ready, Consumer consumer) noexcept:
    cdef int distance
    if not consumer.listed:
        return
    consumer.listed = False
    if consumer.distance != ready.distance:
        ring_remove(&ready.c_farther[consumer.distance], consumer)
        return
    ring_remove(&ready.c_next, consumer)
    distance = ready.distance + 1
    while ready.c_next is NULL and distance < DISTANCES:
        if ready.c_farther[distance] is not NULL:
            ready.c_next = ready.c_farther[distance]
            ready.c_farther[distance] = NULL
            ready.distance = distance
        distance += 1


# ====================================================================== latency
# End-to-end latency of finished messages over a sliding window: counts in logarithmic buckets.
#
# The window has two halves: when the newer one has run for half the window, it replaces the older one. So a result
# covers between half and all of the window, as with nsqd.

cdef enum:
    FINE_BITS = 6                       # 64 buckets for each power of two: within 1.6 per cent
    BUCKETS = 3712                      # 58 powers of two; the last bucket begins above 100 years of nanoseconds


cdef class LatencyWindow:
    cdef readonly list quantiles        # fractions in (0, 1], as configured
    cdef int64_t half_ns                # half the window
    cdef int64_t half_began_ns              # monotonic: start of the current half
    cdef int current                    # 0 or 1
    cdef uint32_t *counts               # owned; two times BUCKETS, NULL before the first insert
    cdef int64_t totals[2]

    cdef void insert(self, int64_t latency_ns, int64_t now_ns) noexcept     # now: monotonic
    cdef void next_half(self, int64_t now_ns) noexcept


# ====================================================================== openbatch
# A multi-publish from its first byte to its answer: its messages, how many are published, and the result so far. Each
# connection reuses one for every batch; over HTTP each request has its own.

cdef enum:
    SIZE_BYTES = 4          # of the size before each message

cdef enum BatchSource:
    SIZED                   # each message follows its size
    LINES                   # text; empty lines do not count
    GATHERED                # messages, received one by one


cdef struct Once:
    # A publish with an id; see storage.pxd. All zeros: no id.
    PublishId id
    int64_t claim           # number of the id's entry while it is being published; 0: none
    int64_t failures        # count of failed commits by then
    bint asked              # the publish has an id
    bint wrote              # some of its messages went to a commit


cdef struct Part:           # one message of a batch
    Message *message        # with its reference, which the receiver takes; NULL: only the body exists
    const char *c_body
    uint32_t size


cdef class OpenBatch:
    cdef int source             # BatchSource
    cdef const char *c_data     # SIZED, LINES: the rest is c_data[at:end]; not owned
    cdef int64_t at, end        # GATHERED: at of end messages are published
    cdef int64_t count          # SIZED: messages remaining
    cdef bytes body             # owns c_data; None: the publisher does
    cdef Fifo gathered          # owned, with the references: the rest of GATHERED
    cdef uint32_t defer_ms      # of each message
    cdef StoreOwner topic      # None: none yet, or the answer was given
    cdef readonly bint open     # some messages are not published yet
    cdef bint admitted          # its topic has room for the whole batch
    cdef int result             # PutResult of the messages published so far
    cdef Once once
    cdef Buffer staged          # owned: messages so far, for a log, which appends a batch as a whole

    cdef void begin(self, StoreOwner topic, uint32_t defer_ms) noexcept
    cdef void take_sized(self, const char *c_data, int64_t at, int64_t end, int64_t count) noexcept
    cdef void take_gathered(self) noexcept
    cdef void measure(self, int64_t *count, int64_t *body_bytes) noexcept   # of the rest: messages, bytes of bodies
    # Both end the batch, and return True. end_with() drops the rest; after refuse(), the publisher retries or drops it.
    cdef bint end_with(self, int result, Slicer slicer) noexcept
    cdef bint refuse(self, int result) noexcept

    cdef inline bint more(self) noexcept:
        return self.at < self.end


# The next message, which must exist.
cdef inline void batch_next(OpenBatch batch, Part *part) noexcept:
    cdef Entry entry
    part.message = NULL
    part.c_body = batch.c_data + batch.at
    if batch.source == SIZED:
        part.size = <uint32_t> load_i32(part.c_body)
        part.c_body += SIZE_BYTES
        batch.at += SIZE_BYTES + <int64_t> part.size
        batch.count -= 1
    elif batch.source == GATHERED:
        fifo_pop(&batch.gathered, &entry)
        part.message = entry.message
        part.c_body = entry.message.body
        part.size = entry.message.size
        batch.at += 1
    else:
        part.size = <uint32_t> line_bytes(part.c_body, batch.end - batch.at)
        batch.at = next_line(batch.c_data, batch.at + part.size, batch.end)


# The length of the line that begins there.
cdef inline int64_t line_bytes(const char *c_at, int64_t most) noexcept:
    cdef const char *c_feed = <const char *> memchr(c_at, c"\n", <size_t> most)
    return most if c_feed is NULL else c_feed - c_at


# The start of the next non-empty line, or the end.
cdef inline int64_t next_line(const char *c_data, int64_t at, int64_t end) noexcept:
    while at < end and c_data[at] == c"\n":
        at += 1
    return at


# ====================================================================== seams
# Upward calls of the broker: abstract bases that a higher part implements and passes in when it creates the lower one.
# Consumer, through which a channel delivers, is above. Seams to Python are Protocols.
#
# Topic and Channel are defined above this header, so arguments have the types of their bases.

cdef class TopicOwner:
    # The broker of a topic.
    cdef public bint closing            # the daemon is stopping: nothing new is made, and nothing moves
    cdef public bint draining           # nothing new is accepted or delivered; messages in flight may finish
    cdef bint failing                   # a write has failed: on_written() is called for commits that succeed, too
    cdef StoreOwner make_channel(self, StoreOwner topic, bytes name)
    cdef int on_channel_created(self, StoreOwner topic, StoreOwner channel) except -1
    # The channel is about to drop its messages.
    cdef int on_channel_deleted(self, StoreOwner topic, StoreOwner channel) except -1
    cdef int on_last_channel_gone(self, StoreOwner topic) except -1     # of an ephemeral topic
    cdef int on_topic_deleted(self, StoreOwner topic) except -1         # with all its messages
    # A write has failed, of a channel or, if that is None, of the topic itself. error 0: the failed data was written
    # or is gone; both None: a commit has succeeded.
    cdef void on_written(self, StoreOwner topic, StoreOwner channel, int error) noexcept
    # It may have messages to drop, ids of publishes to forget, or segments of its log to remove.
    cdef void on_aging(self, StoreOwner topic) noexcept
    cdef void on_bound(self, StoreOwner topic) noexcept                     # it refuses publishes: see bound_reason
    cdef int on_log_full(self, StoreOwner topic, bint full) except -1       # or no longer full
    cdef int on_log_left(self, StoreOwner topic, TopicLog log) except -1    # everything in it is finished
    cdef int on_refused(self, reason) except -1                             # a publish, see nsqc.broker.refusals
    # Messages go to its dead-letter topic; or, with an errno, could not be written there.
    cdef void on_dead(self, StoreOwner channel, int error) noexcept
    cdef void resume_later(self, StoreOwner topic) noexcept                 # calls topic.resume() soon


# ====================================================================== state of a topic
# The state of a topic, its metrics, and what its channels call: Channel is defined above this header, so channels have
# the type of its base. topic.pxd has the behaviour of a topic. Storages have its messages: see storage.pxd.

cdef struct TopicLimits:    # of messages waiting in the topic itself
    int64_t max_depth, max_bytes    # 0: none
    int64_t message_ttl_ns          # age at which they are dropped; 0: never
    bint trims                      # at the limit, the oldest messages are dropped,
    bint refuses                    # or publishes are refused
    bint watched                    # messages may have to be dropped


cdef class Storage:
    # Stores the messages of a topic. One object serves all topics and keeps its state in the topic. A topic always has
    # queues, and a log as well if its rule says or said so; it publishes to one of them.
    # Adds a message; PutResult. c_origin: of a dead letter, see leaving.pxd; only a log stores it.
    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept
    # Adds messages of a batch until the slice is over; True: the batch is finished, or refused (batch.result).
    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept
    cdef bint lags(self, TopicState topic) noexcept             # publishers have to wait
    cdef object write_path(self, TopicState topic)              # the file that receives messages
    # Messages that wait for the channels.
    cdef int64_t depth(self, TopicState topic) noexcept
    cdef int64_t disk_depth(self, TopicState topic) noexcept
    cdef void empty(self, TopicState topic) noexcept
    # The topic or a channel starts, pauses or ends.
    cdef int add_channel(self, TopicState topic, StoreOwner channel, start) except -1
    cdef void channel_gone(self, TopicState topic) noexcept
    cdef void pause(self, TopicState topic) noexcept
    cdef void unpause(self, TopicState topic) noexcept
    cdef int delete(self, TopicState topic) except -1
    # For a stop: writes waiting messages to disk; returns how many were in memory. written: all channels were written.
    cdef int64_t close(self, TopicState topic, bint written) except -1


cdef class TopicState(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint started          # all initial channels exist
    cdef readonly bint exiting
    cdef readonly dict channels         # name to Channel
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    # Subtracted from these after a failed write: metrics include it, as their counters never fall.
    cdef uint64_t taken_count, taken_bytes
    cdef Storage storage                # gets published messages
    cdef tuple storages                 # that one, and the other one while it has messages
    cdef Backlog backlog
    cdef Clock clock
    cdef Commit commit
    cdef Slicer slicer
    cdef DiskSpace space
    cdef GuidFactory guids
    cdef TopicOwner owner               # the broker
    cdef list fan                       # the channels, for the hot path
    cdef int fan_count
    cdef bint direct
    cdef bint retrying                  # memory or the disk failed; resume() will follow
    cdef bint waiting                   # for the disk; on_readable() will follow
    cdef int stuck                      # count of channels that cannot write
    cdef int64_t copied_serial          # copies of messages read from disk before this are in the running commit
    cdef object gone                    # callables for when its deletion ends; None: it has ended
    cdef PublishIds ids                 # None: it remembers no ids
    cdef uint64_t deduplicated          # publishes skipped as duplicates
    cdef Entry leftover                 # did not reach some channels for lack of memory; its message is NULL: none
    cdef bint leftover_copy             # it was read from disk
    cdef list lacking                   # Channels that get it later
    cdef Retired *retired               # of deleted folded channels; owned; NULL: none

    # For a log; see docs/design.md.
    cdef readonly object rule           # nsqc.options.rules.TopicRule; None: in memory
    cdef readonly TopicLog log          # None: no log
    cdef bint logs                      # its rule says log; otherwise, the log is delivered first and then unused
    cdef TopicPlace place               # the first message hidden from channels
    cdef Earlier earlier                # channels of an earlier run, until the topic is started
    cdef Cursor settled                 # redriven or dropped dead letters; None: none. See storage.pxd
    cdef int64_t segment_count          # of the log, at the owner's last notification
    cdef int64_t most_bytes             # of the log; 0: no limit
    cdef bint log_full                  # the log is at its limit, and a channel needs the oldest segment
    cdef readonly str full_reason

    cdef TopicLimits limits
    cdef object rule_source             # origin of the limits
    cdef bint bounded                   # publishes need a check: see storage.pxd
    cdef PyObject **limited             # borrowed Channels whose limits may refuse a publish; the array is owned
    cdef int limited_count
    cdef readonly str bound_reason      # why the last one was refused
    cdef int64_t bound_count, bound_bytes   # its messages
    cdef bint bound_lasts               # it would be refused even by empty queues
    cdef bint crowded                   # publishers wait for room: see topic.pxd
    cdef readonly list crowd            # these publishers
    cdef bint looking                   # a timer checks for them
    cdef readonly bint aging            # the owner drops messages that expire here
    cdef uint64_t expired_count, overflow_count     # messages dropped here

    cdef int64_t allowance              # messages to accept before publishers are held
    cdef list held                      # LoopWork: the publishers

    cdef void storage_changed(self) noexcept        # after log or logs has changed
    # Messages wait that its channels get before those of the log.
    cdef inline bint has_queued(self) noexcept:
        return self.leftover.message is not NULL or self.backlog.depth() > 0
    # A channel's backlog could not be written, or, with error 0, was written or is empty. stuck: before that, it could
    # not be written.
    cdef void on_channel_written(self, StoreOwner channel, int error, bint stuck) noexcept
    cdef void on_moved(self) noexcept       # dead letters of a channel have left it, or cannot leave it now
    cdef void on_room(self) noexcept        # while crowded: a message has left the queues of a channel
    cdef int on_clients_gone(self, StoreOwner channel) except -1        # an ephemeral one has lost its last client
    # Messages that wait in the topic itself, and those of them on disk.
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef TopicLevels levels(self) noexcept
    cdef TopicCounts counts(self) noexcept
    cdef TopicCounts metered(self) noexcept     # counts for metrics, which never fall
    cdef DedupeFigures dedupe(self) noexcept    # if it remembers ids


# ====================================================================== state of a channel
# The state of a channel, and its metrics. channel.pyx has its code.
#
# Invariants: every Delivery of in_flight is in timeouts, and vice versa; deferred ones are only in
# delayed. A consumer is in a ring of ready ones exactly while wants_more(consumer) holds.

cdef extern from *:
    bint unlikely(bint condition) noexcept nogil    # Cython's: moves rare code out of the way

cdef enum Timed:            # of Channel.times
    TO_DELIVERY
    TO_FINISH


cdef class ChannelState(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint draining                  # the daemon drains
    cdef bint throttled                 # a rule allows no delivery now
    cdef bint halted                    # paused, draining or throttled: deliveries stop
    cdef readonly bint exiting          # deleted or closed: accepts nothing more, and owner is None
    cdef bint deserted                  # ephemeral, and its last client is gone: the next slice deletes it
    cdef ChannelCounts counts
    cdef readonly dict clients          # id to Consumer, in order of arrival
    cdef readonly LatencyWindow latency  # None: no percentiles are configured
    # From publishing to the first delivery, and to FIN. Owned; NULL before the first message.
    cdef TwoTimes *times
    cdef Backlog backlog
    cdef Cursor cursor                  # in the topic's log; None: no log
    cdef bint log_first                 # the log is delivered before the backlog; else after it
    cdef InFlightMap in_flight
    cdef Heap timeouts                  # deliveries in flight, by time-out
    cdef Heap delayed                   # deferred deliveries, by due time
    cdef ChannelRules *rules            # owned; NULL: none
    cdef readonly object rule           # nsqc.options.rules.ChannelRule; None: no rule
    cdef Heap front                     # failed deliveries of an ordered channel, which go before all others
    cdef Again again                    # with message_ttl: requeued messages that wait
    cdef int64_t taken                  # messages taken from the queues for delivery; counted while there are rules
    cdef int64_t look_ns                # monotonic: next check for expired messages; NEVER: once some arrive
    cdef uint32_t undated               # deferred ones still to be checked after a step of the wall clock
    cdef bint sorted                    # exhausted messages of an earlier run go first
    cdef Lost lost
    cdef Heap dead, sent                # deliveries on their way to the dead-letter topic: see leaving.pxd
    cdef int64_t dead_serial            # messages added to dead since it was empty
    cdef object sender                  # of the batch in sent; None: no batch
    cdef bint dead_waits                # the dead-letter topic accepted nothing at the last attempt
    cdef dict last_clients              # id of a consumer to its part of an origin; None: none known. See leaving.pxd
    cdef readonly bytes dead_letter     # name of the dead-letter topic; empty: none
    cdef int64_t paced_ns               # monotonic: when the deliveries so far would end at the rule's rate
    cdef int64_t resume_ns              # monotonic: when the rate allows the next one; NEVER: now
    cdef Clock clock
    cdef int64_t max_msg_timeout_ns
    cdef int64_t max_consumers          # 0: no limit
    cdef Ready ready                    # the consumers to serve
    cdef uint64_t[DISTANCES] left       # messages delivered to consumers that are gone, by distance
    cdef readonly bint stuck            # the last attempt to write the backlog failed
    cdef bint retrying                  # memory or the disk failed; resume() will follow
    cdef int64_t alarm_ns               # monotonic: the timers call expire() then; NEVER: no alarm
    cdef object timers                  # nsqc.broker.stats.Timers
    cdef Slicer slicer                  # runs long work
    cdef TopicState owner               # the topic; None once this is deleted
    cdef Place *place                   # of the last message taken from the backlog, or
    cdef int64_t offset                 # its offset in the log

    # The clock must be fresh for these. Waiting messages, those of them on disk, deferred messages, and undelivered
    # records of the log.
    cdef ChannelLevels levels(self) noexcept
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef int64_t count_deferred(self) noexcept
    cdef int64_t log_lag(self) noexcept
    cdef int64_t front_deferred(self) noexcept     # deferred ones of front


# RULE: nothing calls a channel after its end, except to remove a client or to free it.
cdef inline void check_alive(ChannelState channel) noexcept:
    if CHECKS and channel.exiting:
        broken("a channel is used after its end")


# Frees the deliveries of a heap with messages of the log. They must not be in flight.
cdef void drop_logged(Heap *heap) noexcept

cdef void count_other_time(ChannelState channel, int which, int64_t ns) noexcept


# Counts how long ago a message was published.
cdef inline void count_time(ChannelState channel, int which, const Message *message) noexcept:
    cdef TwoTimes *times = channel.times
    cdef int64_t ns = channel.clock.wall - message.timestamp_ns
    if unlikely(times is NULL or times.of[which].latest != ns):
        count_other_time(channel, which, ns)
    else:
        times.of[which].run += 1
