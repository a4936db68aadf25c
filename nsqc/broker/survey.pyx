"""All topics and channels as numbers. Names that come and go with their clients share a row: see docs/metrics.md.

Such a row begins with what is gone, and a list is kept of who was there at that moment. All of these are added, also
those that are deleted before their turn: they are in no other place, and a counter must not fall.
"""

cimport cython
from libc.stdint cimport int64_t

from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel
from nsqc.broker.retired cimport Retired
from nsqc.broker.topic cimport Topic
from nsqc.metrics.table cimport ABSENT, Row, Table
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog
from nsqc.store.delivery cimport Delivery
from nsqc.store.fifo cimport FifoBlock
from nsqc.store.heap cimport HeapItem
from nsqc.store.inflight cimport IdSlot
from nsqc.store.slices cimport Sliced

cdef enum:
    STEPS = 16              # rows between two looks at the clock: each touches a dozen cold lines
    BLOCK_SLOTS = 511       # of a FifoBlock

cdef bytes EPHEMERAL = b"#ephemeral"


@cython.final
cdef class Survey(Sliced):
    """Collects once. done() is called when it has; failure: the exception that ended it early."""

    def __init__(self, Broker broker not None, done):
        self.broker = broker
        self.done = done
        self.topics = Table()
        self.channels = Table()
        self.left = list(broker.topics.values())

    def start(self):
        """Collects from the next loop iteration on."""
        self.broker.slicer.add(self)

    cdef bint run_slice(self) noexcept:
        try:
            if self._collect():
                return True
        except Exception as error:
            self.failure = error
        self.left = self.fans = self.channels_left = None
        self.topic = None
        done, self.done = self.done, None
        done()
        return False

    cdef bint _collect(self) except -1:
        """Whether more is left."""
        cdef Topic topic
        cdef int steps = STEPS
        self.broker.clock.refresh()
        if self.at == 0:
            self._begin_ephemeral()
        while True:
            while self.channels_left is not None and self.channel_at < len(self.channels_left):
                self._add_channel(<Channel> self.channels_left[self.channel_at])
                self.channel_at += 1
                steps -= 1
                if steps <= 0:
                    if self.broker.slicer.over():
                        return True
                    steps = STEPS
            if self.at == len(self.left):
                return False
            topic = <Topic> self.left[self.at]
            self.channels_left = None
            if self.at >= self.plain:
                self._add_topic(topic, <list> self.fans[self.at - self.plain])
            elif not (topic.exiting or topic.ephemeral):
                self._add_topic(topic, topic.fan)
            self.at += 1
            steps -= 1

    def _begin_ephemeral(self):
        """Rows for those that are gone, and a list of those that are there."""
        cdef Row *row
        cdef Topic topic
        self.plain = len(self.left)
        self.left += self.broker.ephemeral.values()
        self.fans = [topic.fan for topic in self.broker.ephemeral.values()]
        if self.broker.ephemeral_messages:
            self.ephemeral_topics = self.topics.add(EPHEMERAL, None)
            row = self.ephemeral_topics
            row.cells[<int> T_MESSAGES] = <int64_t> self.broker.ephemeral_messages
            row.cells[<int> T_BYTES] = <int64_t> self.broker.ephemeral_bytes
            leave_out_rest(row)
        if self.broker.ephemeral_retired is not NULL:
            self.ephemeral_channels = self._begin_fold(EPHEMERAL, None if self.broker.folds_channels else EPHEMERAL,
                                                       self.broker.ephemeral_retired)

    cdef int _add_topic(self, Topic topic, list fan) except -1:
        """fan: its channels, a list that nobody changes."""
        cdef Row *row
        if not topic.ephemeral:
            row = self.topics.add(topic.name, None)
            leave_out_rest(row)
        else:
            if self.ephemeral_topics is NULL:
                self.ephemeral_topics = self.topics.add(EPHEMERAL, None)
                leave_out_rest(self.ephemeral_topics)
            row = self.ephemeral_topics
        row.cells[<int> T_MESSAGES] += <int64_t> (topic.message_count + topic.taken_count)
        row.cells[<int> T_BYTES] += <int64_t> (topic.message_bytes + topic.taken_bytes)
        row.cells[<int> T_EXPIRED] += <int64_t> topic.expired_count
        row.cells[<int> T_OVERFLOWS] += <int64_t> topic.overflow_count
        self.topic = topic
        self.channels_left = fan
        self.channel_at = 0
        self.fold = NULL
        if topic.exiting:
            return 0
        row.cells[<int> T_DEPTH] += topic.count_waiting()
        row.cells[<int> T_ON_DISK] += topic.count_on_disk()
        row.cells[<int> T_CHANNELS] += len(topic.channels)
        if topic.log is not None:
            row.cells[<int> T_LOG_FIRST] = topic.log.first_offset()
            row.cells[<int> T_LOG_NEXT] = max(topic.log.next, topic.log.resume_at)
            row.cells[<int> T_LOG_SEGMENTS] = topic.log.segments.count
            row.cells[<int> T_LOG_BYTES] = topic.log.segments.bytes
            row.cells[<int> T_LOG_DAMAGED] = topic.log.damaged
            row.cells[<int> T_LOG_MISSING] = topic.log.segments.missing + topic.log.lost
        if topic.ids is not None:
            row.cells[<int> T_DEDUPLICATED] = <int64_t> topic.deduplicated
            row.cells[<int> T_IDS] = topic.ids.count
            row.cells[<int> T_IDS_FORGOTTEN] = <int64_t> topic.ids.forgotten
            self.queue_bytes += topic.ids.memory()
        self.queue_bytes += backlog_bytes(topic.backlog) + topic.commit.unwritten
        self.topic_count += 1
        if topic.retired is not NULL:
            self.fold = self._begin_fold(topic.name, None if self.broker.folds_channels else EPHEMERAL, topic.retired)
        return 0

    cdef int _add_channel(self, Channel channel) except -1:
        cdef Row *row
        if channel.exiting or self.topic.exiting:
            if self.topic.ephemeral or not self.topic.exiting and (channel.ephemeral or self.broker.folds_channels):
                self._add_counts(self._row_of(channel), channel)
            return 0
        row = self._row_of(channel)
        self._add_counts(row, channel)
        row.cells[<int> C_DEPTH] += channel.count_waiting()
        row.cells[<int> C_ON_DISK] += channel.count_on_disk()
        row.cells[<int> C_IN_FLIGHT] += channel.timeouts.count
        row.cells[<int> C_DEFERRED] += channel.count_deferred()
        row.cells[<int> C_CLIENTS] += len(channel.clients)
        if channel.cursor is not None:
            if row.cells[<int> C_LOG_LAG] == ABSENT:
                row.cells[<int> C_LOG_LAG] = 0
            row.cells[<int> C_LOG_LAG] += channel.log_lag()
        self.queue_bytes += (
            backlog_bytes(channel.backlog)
            + <int64_t> (channel.timeouts.room + channel.delayed.room) * <int64_t> sizeof(HeapItem)
            + <int64_t> (channel.timeouts.count + channel.delayed.count) * <int64_t> sizeof(Delivery)
            + (<int64_t> channel.in_flight.mask + 1) * <int64_t> sizeof(IdSlot) * (channel.in_flight.slots is not NULL)
            + (<int64_t> sizeof(TwoTimes) if channel.times is not NULL else 0))
        self.channel_count += 1
        return 0

    cdef int _add_counts(self, Row *row, Channel channel) except -1:
        row.cells[<int> C_MESSAGES] += <int64_t> channel.message_count
        row.cells[<int> C_REQUEUES] += <int64_t> channel.requeue_count
        row.cells[<int> C_TIMEOUTS] += <int64_t> channel.timeout_count
        row.cells[<int> C_DEAD_LETTERS] += <int64_t> channel.dead_letter_count
        row.cells[<int> C_REDRIVEN] += <int64_t> channel.redriven_count
        row.cells[<int> C_EXPIRED] += <int64_t> channel.expired_count
        row.cells[<int> C_OVERFLOWS] += <int64_t> channel.overflow_count
        if channel.times is not NULL:
            self.channels.add_times(row, channel.times)
        return 0

    cdef Row *_row_of(self, Channel channel) except NULL:
        cdef Row *row
        if self.topic.ephemeral:
            if self.ephemeral_channels is NULL:
                self.ephemeral_channels = self._begin_fold(
                    EPHEMERAL, None if self.broker.folds_channels else EPHEMERAL, NULL)
            return self.ephemeral_channels
        if channel.ephemeral or self.broker.folds_channels:
            if self.fold is NULL:
                self.fold = self._begin_fold(self.topic.name, None if self.broker.folds_channels else EPHEMERAL, NULL)
            return self.fold
        row = self.channels.add(self.topic.name, channel.name)
        row.cells[<int> C_LOG_LAG] = ABSENT
        return row

    cdef Row *_begin_fold(self, bytes topic, bytes channel, Retired *retired) except NULL:
        """A row for several channels, with what deleted ones have counted."""
        cdef Row *row = self.channels.add(topic, channel)
        row.cells[<int> C_LOG_LAG] = ABSENT
        if retired is not NULL:
            row.cells[<int> C_MESSAGES] = <int64_t> retired.messages
            row.cells[<int> C_REQUEUES] = <int64_t> retired.requeues
            row.cells[<int> C_TIMEOUTS] = <int64_t> retired.timeouts
            row.cells[<int> C_DEAD_LETTERS] = <int64_t> retired.dead_letters
            row.cells[<int> C_REDRIVEN] = <int64_t> retired.redriven
            row.cells[<int> C_EXPIRED] = <int64_t> retired.expired
            row.cells[<int> C_OVERFLOWS] = <int64_t> retired.overflows
            self.channels.add_times(row, &retired.times)
        return row


cdef void leave_out_rest(Row *row) noexcept:
    """What only topics in a log have, or those that remember ids."""
    row.cells[<int> T_LOG_FIRST] = row.cells[<int> T_LOG_NEXT] = ABSENT
    row.cells[<int> T_LOG_SEGMENTS] = row.cells[<int> T_LOG_BYTES] = ABSENT
    row.cells[<int> T_LOG_DAMAGED] = row.cells[<int> T_LOG_MISSING] = ABSENT
    row.cells[<int> T_DEDUPLICATED] = row.cells[<int> T_IDS] = row.cells[<int> T_IDS_FORGOTTEN] = ABSENT


cdef int64_t backlog_bytes(Backlog backlog) noexcept:
    """Of its memory queue, messages excluded."""
    if backlog.memory.head is NULL:
        return 0
    return (backlog.memory.first + backlog.memory.count + BLOCK_SLOTS - 1) // BLOCK_SLOTS * <int64_t> sizeof(FifoBlock)
