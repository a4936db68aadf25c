"""Numbers of all topics and channels, and looks at their messages, in slices."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from typing import NamedTuple

from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel
from nsqc.broker.rules cimport AgainSlot
from nsqc.broker.figures cimport (ChannelCells, ChannelCounts, ChannelLevels, DedupeFigures, LogFigures, Retired,
                                  TopicCells, TopicCounts, TopicLevels, add_figures, figure_names)
from nsqc.broker.topic cimport Topic
from nsqc.metrics.table cimport ABSENT, MOST_COLUMNS, Row, Table
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog
from nsqc.store.log.positions cimport RequeuedBlock, offsets_have
from nsqc.store.memory cimport monotonic_ns, wall_ns
from nsqc.store.message cimport Delivery, FifoBlock, HeapItem, IdSlot
from nsqc.store.peek cimport FifoPeek, HeapPeek, Page
from nsqc.store.work cimport LoopWork


# ====================================================================== survey
# All topics and channels as numbers, for metrics: collected in slices, into tables that a thread reads afterwards.
# Names that come and go with their clients share a row: see docs/monitoring.md.
#
# Such a row begins with the counts of deleted names; at the same moment the existing names are listed. All of these are
# added, even if they are deleted before their turn: they are counted nowhere else, and a counter must not fall.

cdef enum:
    STEPS = 16              # rows between two looks at the clock: each touches a dozen cold lines
    BLOCK_SLOTS = 511       # of a FifoBlock

cdef bytes EPHEMERAL = b"#ephemeral"

cdef TopicCells no_topic
cdef ChannelCells no_channel
TOPIC_COLUMNS: tuple[str, ...] = figure_names(no_topic)
CHANNEL_COLUMNS: tuple[str, ...] = figure_names(no_channel)
assert max(len(TOPIC_COLUMNS), len(CHANNEL_COLUMNS)) <= MOST_COLUMNS


@cython.final
cdef class Survey(LoopWork):
    """Collects once, then calls done(). failure: the exception that ended it early."""

    cdef readonly Table topics
    cdef readonly Table channels
    cdef readonly int64_t topic_count, channel_count
    cdef readonly int64_t queue_bytes   # of memory queues and the records of deliveries
    cdef Broker broker
    cdef list left                      # topics still to be added, and
    cdef Py_ssize_t at                  # the next of them
    cdef Py_ssize_t plain               # the number of those before the ephemeral ones
    cdef list fans                      # the channels of these, as of when deleted names were counted
    cdef Topic topic                    # whose channels are being added
    cdef list channels_left             # its remaining channels, and
    cdef Py_ssize_t channel_at
    cdef Row *fold                      # the row of its folded channels; NULL: none so far, here and below
    cdef Row *ephemeral_topics
    cdef Row *ephemeral_channels
    cdef object done
    cdef readonly object failure    # type: Exception | None

    def __init__(self, Broker broker not None, done: Callable[[], object]):
        self.broker = broker
        self.done = done
        self.topics = Table()
        self.channels = Table()
        self.left = list(broker.topics.values())

    def start(self):
        """Collects from the next loop iteration on."""
        self.broker.slicer.add(self)

    cdef bint run(self) noexcept:
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
        """Returns whether work remains."""
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
        """Adds rows for deleted ephemeral names, and lists the existing ones."""
        cdef Topic topic
        self.plain = len(self.left)
        self.left += self.broker.ephemeral.values()
        self.fans = [topic.fan for topic in self.broker.ephemeral.values()]
        if self.broker.ephemeral_counts.message_count:
            self.ephemeral_topics = new_topic_row(self.topics, EPHEMERAL)
            (<TopicCells *> self.ephemeral_topics.cells).figures.counts = self.broker.ephemeral_counts
        if self.broker.ephemeral_retired is not NULL:
            self.ephemeral_channels = self._begin_fold(EPHEMERAL, self.broker.ephemeral_retired)

    cdef int _add_topic(self, Topic topic, list fan) except -1:
        """fan: its channels, an immutable list."""
        cdef TopicCounts counts = topic.metered()
        cdef TopicLevels levels
        cdef TopicCells *cells
        cdef Row *row = self.ephemeral_topics if topic.ephemeral else new_topic_row(self.topics, topic.name)
        if row is NULL:
            row = self.ephemeral_topics = new_topic_row(self.topics, EPHEMERAL)
        cells = <TopicCells *> row.cells
        add_figures(&cells.figures.counts, &counts, sizeof(TopicCounts))
        self.topic = topic
        self.channels_left = fan
        self.channel_at = 0
        self.fold = NULL
        if topic.exiting:
            return 0
        levels = topic.levels()
        add_figures(&cells.figures.levels, &levels, sizeof(TopicLevels))
        cells.channels += len(topic.channels)
        if topic.log is not None:
            cells.log = LogFigures(
                topic.log.first_offset(), max(topic.log.next, topic.log.resume_at), topic.log.segments.count,
                topic.log.segments.bytes, topic.log.damaged, topic.log.segments.missing + topic.log.lost)
        if topic.ids is not None:
            cells.dedupe = topic.dedupe()
            self.queue_bytes += topic.ids.memory()
        self.queue_bytes += backlog_bytes(topic.backlog) + topic.commit.unwritten
        self.topic_count += 1
        if topic.retired is not NULL:
            self.fold = self._begin_fold(topic.name, topic.retired)
        return 0

    cdef int _add_channel(self, Channel channel) except -1:
        cdef ChannelLevels levels
        cdef ChannelCells *cells
        cdef Row *row
        if channel.exiting or self.topic.exiting:
            if self.topic.ephemeral or not self.topic.exiting and (channel.ephemeral or self.broker.folds_channels):
                self._add_counts(self._row_of(channel), channel)
            return 0
        row = self._row_of(channel)
        self._add_counts(row, channel)
        cells = <ChannelCells *> row.cells
        levels = channel.levels()
        add_figures(&cells.figures.levels, &levels, sizeof(ChannelLevels))
        if channel.cursor is not None:
            cells.log_lag = channel.log_lag() + (0 if cells.log_lag == ABSENT else cells.log_lag)
        self.queue_bytes += (
            backlog_bytes(channel.backlog)
            + <int64_t> (channel.timeouts.room + channel.delayed.room) * <int64_t> sizeof(HeapItem)
            + <int64_t> (channel.timeouts.count + channel.delayed.count) * <int64_t> sizeof(Delivery)
            + (<int64_t> channel.in_flight.mask + 1) * <int64_t> sizeof(IdSlot) * (channel.in_flight.slots is not NULL)
            + (<int64_t> sizeof(TwoTimes) if channel.times is not NULL else 0))
        self.channel_count += 1
        return 0

    cdef int _add_counts(self, Row *row, Channel channel) except -1:
        add_figures(&(<ChannelCells *> row.cells).figures.counts, &channel.counts, sizeof(ChannelCounts))
        if channel.times is not NULL:
            self.channels.add_times(row, channel.times)
        return 0

    cdef Row *_row_of(self, Channel channel) except NULL:
        if self.topic.ephemeral:
            if self.ephemeral_channels is NULL:
                self.ephemeral_channels = self._begin_fold(EPHEMERAL, NULL)
            return self.ephemeral_channels
        if channel.ephemeral or self.broker.folds_channels:
            if self.fold is NULL:
                self.fold = self._begin_fold(self.topic.name, NULL)
            return self.fold
        return new_channel_row(self.channels, self.topic.name, channel.name)

    cdef Row *_begin_fold(self, bytes topic, Retired *retired) except NULL:
        """A row for several channels, with the counts of deleted ones."""
        cdef Row *row = new_channel_row(self.channels, topic, None if self.broker.folds_channels else EPHEMERAL)
        if retired is not NULL:
            (<ChannelCells *> row.cells).figures.counts = retired.counts
            self.channels.add_times(row, &retired.times)
        return row


cdef Row *new_topic_row(Table table, bytes name) except NULL:
    """A row without the numbers that only some topics have."""
    cdef Row *row = table.add(name, None)
    cdef TopicCells *cells = <TopicCells *> row.cells
    cells.dedupe = DedupeFigures(ABSENT, ABSENT, ABSENT)
    cells.log = LogFigures(ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)
    return row


cdef Row *new_channel_row(Table table, bytes topic, bytes name) except NULL:
    cdef Row *row = table.add(topic, name)
    (<ChannelCells *> row.cells).log_lag = ABSENT
    return row


cdef int64_t backlog_bytes(Backlog backlog) noexcept:
    """Bytes of its memory queue, messages excluded."""
    if backlog.memory.head is NULL:
        return 0
    return (backlog.memory.first + backlog.memory.count + BLOCK_SLOTS - 1) // BLOCK_SLOTS * <int64_t> sizeof(FifoBlock)


# ====================================================================== peek
# Read-only inspection of topics and channels.

class Unread(NamedTuple):
    """Waiting offsets of a log."""

    first: int
    end: int


cdef enum:
    BLOCK_ITEMS = 170       # of RequeuedBlock


cdef Backlog backlog_of(queue):
    if isinstance(queue, Channel):
        return (<Channel> queue).backlog
    return (<Topic?> queue).backlog


def add_leftover(Topic topic not None, Page page not None):
    """Adds the message that some channels still lack, if there is one."""
    if topic.leftover.message is not NULL:
        page.add(topic.leftover.message, topic.leftover.attempts, topic.leftover.defer_ms)


def in_memory(queue: Topic | Channel, int64_t at) -> FifoPeek:
    """Iterates over messages that wait in memory, from a number on."""
    cdef Backlog backlog = backlog_of(queue)
    return FifoPeek.new(backlog, &backlog.memory, at)


def add_front(Channel channel not None, Page page not None, Py_ssize_t at) -> tuple[list[int], int]:
    """Adds the deliveries that an ordered channel makes first, from the at-th on: their offsets (below 0: not in a
    log), and where to continue; below 0: the end."""
    cdef Delivery *delivery
    cdef uint32_t index
    cdef list waiting = [], offsets = []
    channel.clock.refresh()
    for index in range(channel.front.count):
        delivery = channel.front.items[index].delivery
        if delivery.deadline_ns <= channel.clock.monotonic:
            waiting.append((delivery.deadline_ns, delivery.message.id[:16], index))
    waiting.sort()
    for _, _, index in waiting[at:]:
        delivery = channel.front.items[index].delivery
        if page.is_full(delivery.message.size):
            return offsets, at
        page.add(delivery.message, delivery.attempts, 0)
        offsets.append(delivery.offset)
        at += 1
    return offsets, -1


def add_again(Channel channel not None, Page page not None, int64_t number) -> tuple[list[int], int]:
    """Likewise adds requeued messages that wait in a channel with message_ttl: each has a number, in order."""
    cdef AgainSlot *slot
    cdef int64_t at
    cdef list offsets = []
    for at in range(channel.again.first, channel.again.end):
        slot = &channel.again.slots[at & (channel.again.room - 1)]
        if slot.delivery is NULL or slot.number < number:
            continue
        if page.is_full(slot.delivery.message.size):
            return offsets, slot.number
        page.add(slot.delivery.message, slot.delivery.attempts, 0)
        offsets.append(slot.delivery.offset)
    return offsets, -1


def held(Channel channel not None, bint in_flight, int64_t after_ns, bytes after_tie not None,
         int64_t most) -> HeapPeek:
    """Looks for messages in flight, or deferred, after a position in the order of their due times."""
    if in_flight:
        return HeapPeek.new(channel, &channel.timeouts, NULL, None, after_ns, after_tie, most)
    return HeapPeek.new(channel, &channel.delayed, &channel.front, channel.cursor, after_ns, after_tie, most)


def delays(queue: Topic | Channel) -> dict[bytes, int]:
    """Delays of messages on disk, which the caller must not change: of a topic, milliseconds that have not begun; of a
    channel, due times in ns since 1970."""
    return backlog_of(queue).delays


def requeued(Channel channel not None, int64_t at, int64_t most) -> tuple[list[tuple[int, int]], int]:
    """Requeued messages of the log, from a number on: offset and attempts of each; and the next number."""
    cdef RequeuedBlock *block
    cdef int64_t begin, end
    cdef list found = []
    if channel.cursor is None:
        return found, at
    begin = channel.cursor.requeued.passed
    end = begin + channel.cursor.requeued.first + channel.cursor.requeued.count
    at = max(at, begin + channel.cursor.requeued.first)
    block = channel.cursor.requeued.head
    while block is not NULL and at < end and len(found) < most:
        if at >= begin + BLOCK_ITEMS:
            block = block.next
            begin += BLOCK_ITEMS
            continue
        found.append((block.items[at - begin].offset, block.items[at - begin].attempts))
        at += 1
    return found, at


def unread(queue: Topic | Channel) -> Unread:
    """Records of the log that a channel has not received; for a topic, those hidden from all channels."""
    cdef Channel channel
    cdef Topic topic
    if isinstance(queue, Channel):
        channel = <Channel> queue
        if channel.cursor is None:
            return Unread(0, 0)
        return Unread(channel.cursor.next, channel.cursor.log.visible)
    topic = <Topic?> queue
    if topic.log is None or (topic.channels and not topic.log.held):
        return Unread(0, 0)
    return Unread(topic.log.visible if topic.channels else topic.place.next, topic.log.next)


def due_of(Channel channel not None, int64_t offset) -> int:
    """Of an unread offset: its due time (monotonic ns) if deferred; 0: it waits; below 0: finished."""
    cdef int64_t due_ns
    if channel.cursor is None or offset < channel.cursor.next or offsets_have(&channel.cursor.skips, offset):
        return -1
    due_ns = channel.cursor.log.delay_of(offset)
    return due_ns if due_ns > monotonic_ns() else 0


def log_first(Channel channel not None) -> bool:
    """Whether the log is delivered before messages in memory and on disk."""
    return channel.log_first


def clock_shift(queue: Topic | Channel) -> int:
    """Add this to a monotonic time to get the wall clock, ns."""
    return wall_ns() - monotonic_ns()
