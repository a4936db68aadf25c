# A topic: publishes to its storage and channels; publishers that wait for room.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr

from nsqc.broker.figures cimport DedupeFigures, Retired, TopicCounts, TopicLevels
from nsqc.store.backlog cimport PUT_DISK, Backlog
from nsqc.store.log.cursor cimport Cursor, Earlier, TopicPlace
from nsqc.store.log.frame cimport Buffer
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport Clock
from nsqc.store.message cimport Entry, Fifo, GuidFactory, Message, fifo_pop
from nsqc.store.publishids cimport PublishId, PublishIds
from nsqc.store.work cimport Commit, DiskSpace, LoopWork, Slicer, StoreOwner
from nsqc.wire.hton cimport load_i32

cdef class Topic(StoreOwner)        # topics, channels and the broker know each other

from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel


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
    cdef Topic topic            # None: none yet, or the answer was given
    cdef readonly bint open     # some messages are not published yet
    cdef bint admitted          # its topic has room for the whole batch
    cdef int result             # PutResult of the messages published so far
    cdef Once once
    cdef Buffer staged          # owned: messages so far, for a log, which appends a batch as a whole

    cdef void begin(self, Topic topic, uint32_t defer_ms) noexcept
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


# ====================================================================== storage
cdef class Storage:
    # Stores the messages of a topic. One object serves all topics and keeps its state in the topic. A topic always has
    # queues, and a log as well if its rule says or said so; it publishes to one of them.
    # Adds a message; PutResult. c_origin: of a dead letter, see leaving.pxd; only a log stores it.
    cdef int put(self, Topic topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept
    # Adds messages of a batch until the slice is over; True: the batch is finished, or refused (batch.result).
    cdef bint put_batch(self, Topic topic, OpenBatch batch) noexcept
    cdef bint lags(self, Topic topic) noexcept             # publishers have to wait
    cdef object write_path(self, Topic topic)              # the file that receives messages
    # Messages that wait for the channels.
    cdef int64_t depth(self, Topic topic) noexcept
    cdef int64_t disk_depth(self, Topic topic) noexcept
    cdef void empty(self, Topic topic) noexcept
    # The topic or a channel starts, pauses or ends.
    cdef int add_channel(self, Topic topic, Channel channel, start) except -1
    cdef void channel_gone(self, Topic topic) noexcept
    cdef void pause(self, Topic topic) noexcept
    cdef void unpause(self, Topic topic) noexcept
    cdef int delete(self, Topic topic) except -1
    # For a stop: writes waiting messages to disk; returns how many were in memory. written: all channels were written.
    cdef int64_t close(self, Topic topic, bint written) except -1


# ====================================================================== topic
# Accepts publishes, and has channels. Its messages are in its storages; nsqc/broker/storage.pxd moves them
# to the channels.

cpdef enum:             # results of a publish, for Python, other than an errno
    PENDING = -1        # a commit decides
    RUNNING = -2        # the running commit decides
    TAKEN = -3          # another publish with the same id is undecided
    NO_SPACE = 1 << 16  # the disk has less free than --min-free-disk: DiskSpace.reason
    DRAINING = 1 << 17  # the daemon is draining
    FULL = 1 << 18      # max_depth or max_bytes: Topic.bound_reason


cdef struct TopicLimits:    # of messages waiting in the topic itself
    int64_t max_depth, max_bytes    # 0: none
    int64_t message_ttl_ns          # age at which they are dropped; 0: never
    bint trims                      # at the limit, the oldest messages are dropped,
    bint refuses                    # or publishes are refused
    bint watched                    # messages may have to be dropped


cdef class Topic(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint started          # all initial channels exist
    cdef readonly bint exiting
    cdef readonly dict channels    # type: dict[bytes, Channel]; name to Channel
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
    cdef Broker owner                   # the broker
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
    cdef readonly object rule    # type: TopicRule; None: in memory
    cdef readonly TopicLog log          # None: no log
    cdef bint logs                      # its rule says log; otherwise, the log is delivered first and then unused
    cdef TopicPlace place               # the first message hidden from channels
    cdef Earlier earlier                # channels of an earlier run, until the topic is started
    cdef Cursor settled                 # redriven or dropped dead letters; None: none
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
    cdef bint crowded                   # publishers wait for room: see below
    cdef readonly list crowd    # type: list[object]; these publishers
    cdef bint looking                   # a timer checks for them
    cdef readonly bint aging            # the owner drops messages that expire here
    cdef uint64_t expired_count, overflow_count     # messages dropped here

    cdef int64_t allowance              # messages to accept before publishers are held
    cdef list held                      # LoopWork: the publishers

    # Messages wait that its channels get before those of the log.
    cdef inline bint has_queued(self) noexcept:
        return self.leftover.message is not NULL or self.backlog.depth() > 0
    # A channel's backlog could not be written, or, with error 0, was written or is empty. stuck: before that, it could
    # not be written.
    cdef void on_channel_written(self, Channel channel, int error, bint stuck) noexcept
    cdef void on_moved(self) noexcept       # dead letters of a channel have left it, or cannot leave it now
    cdef void on_room(self) noexcept        # while crowded: a message has left the queues of a channel
    cdef int on_clients_gone(self, Channel channel) except -1        # an ephemeral one has lost its last client
    # Messages that wait in the topic itself, and those of them on disk.
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef TopicLevels levels(self) noexcept
    cdef TopicCounts counts(self) noexcept
    cdef TopicCounts metered(self) noexcept     # counts for metrics, which never fall
    cdef DedupeFigures dedupe(self) noexcept    # if it remembers ids

    # Publishes a message with a new id; PutResult.
    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Publishes a dead letter, under the same conditions. c_origin: see Storage.put(). more, more_bytes: letters
    # published before it that no queue counts yet.
    cdef int publish_dead(self, const char *c_body, uint32_t size, const char *c_origin, uint32_t origin_size,
                          int64_t more, int64_t more_bytes) noexcept
    # Publishes a message with a publish id; PUT_TAKEN: another client is publishing it.
    cdef int publish_once(self, Once *once, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Publishes messages of a batch until the slice is over; returns whether all are published, or the batch is refused:
    # batch.result.
    cdef bint publish_slice(self, OpenBatch batch) noexcept
    # Whether a publisher has to wait; if so, the slicer runs it later.
    cdef bint holds(self, LoopWork publisher) noexcept
    cdef object _settle(self, int result)
    # Why it has refused a message: PutResult.
    cdef object why(self, int result)
    cdef bint _delete_slice(self) noexcept


# ====================================================================== room
# Publishers that wait for room (--publish-wait): a rule refused their publish, and they retry when messages have left.
# The longest waiting one goes first, so small publishes do not starve a batch.

# Whether a publish with this PutResult, the last one refused, may succeed once messages have left.
cdef bint room_helps(Topic topic, int result) noexcept
# Has the slicer run the publisher when the last refused publish fits, or at until_ns, monotonic.
cdef void room_wait(Topic topic, LoopWork publisher, int64_t until_ns) noexcept
cdef void room_leave(Topic topic, LoopWork publisher) noexcept     # the publisher stops waiting


cdef class Room(LoopWork):
    cdef Topic topic
    cdef object call


# ====================================================================== publishes with an id
# Publishes with an id, to a topic that remembers ids: stored once, even if repeated. See nsqc/store/publishids.pxd.

cdef enum:
    GO = -1             # of once_begins(): publish, then once_ended()

# Whether the topic remembers ids; if so, sets the id of a publish.
cdef bint once_new(Topic topic, Once *once, const char *c_id, Py_ssize_t length) noexcept
# Claims the id: GO, or the PutResult of the publish. With PUT_TAKEN, ask again later.
cdef int once_begins(Topic topic, Once *once) noexcept
# Some of its messages were published, with this PutResult.
cdef inline void once_wrote(Once *once, int result) noexcept:
    once.wrote |= result == PUT_DISK
# All of them were published, or the last one was refused.
cdef void once_ended(Topic topic, Once *once, int result) noexcept
# An error prevented the publish.
cdef void once_dropped(Topic topic, Once *once) noexcept
# Applies the topic's rule: how long ids are remembered, and how many; 0: none. opened: the
# nsqc.store.log.recovery.Opened of its log, if just opened.
cdef int follow_dedupe(Topic topic, int64_t window_ns, int64_t limit, object opened) except -1
