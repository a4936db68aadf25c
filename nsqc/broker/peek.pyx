"""Read-only inspection of topics and channels. See the .pyi."""

from collections import namedtuple

from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.again cimport AgainSlot
from nsqc.broker.channel cimport Channel
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.backlog cimport Backlog
from nsqc.store.clock cimport monotonic_ns, wall_ns
from nsqc.store.delivery cimport Delivery
from nsqc.store.log.offsets cimport offsets_have
from nsqc.store.log.waiting cimport RequeuedBlock
from nsqc.store.peek cimport FifoPeek, HeapPeek, Page

Unread = namedtuple("Unread", "first end")

cdef enum:
    BLOCK_ITEMS = 170       # of RequeuedBlock


cdef Backlog backlog_of(queue):
    if isinstance(queue, Channel):
        return (<Channel> queue).backlog
    return (<TopicState?> queue).backlog


def add_leftover(TopicState topic not None, Page page not None):
    """See the .pyi."""
    if topic.leftover.message is not NULL:
        page.add(topic.leftover.message, topic.leftover.attempts, topic.leftover.defer_ms)


def in_memory(queue, int64_t at):
    """See the .pyi."""
    cdef Backlog backlog = backlog_of(queue)
    return FifoPeek.new(backlog, &backlog.memory, at)


def add_front(Channel channel not None, Page page not None, Py_ssize_t at):
    """See the .pyi."""
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


def add_again(Channel channel not None, Page page not None, int64_t number):
    """See the .pyi."""
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


def held(Channel channel not None, bint in_flight, int64_t after_ns, bytes after_tie not None, int64_t most):
    """See the .pyi."""
    if in_flight:
        return HeapPeek.new(channel, &channel.timeouts, NULL, None, after_ns, after_tie, most)
    return HeapPeek.new(channel, &channel.delayed, &channel.front, channel.cursor, after_ns, after_tie, most)


def delays(queue):
    """See the .pyi."""
    return backlog_of(queue).delays


def requeued(Channel channel not None, int64_t at, int64_t most):
    """See the .pyi."""
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


def unread(queue):
    """See the .pyi."""
    cdef Channel channel
    cdef TopicState topic
    if isinstance(queue, Channel):
        channel = <Channel> queue
        if channel.cursor is None:
            return Unread(0, 0)
        return Unread(channel.cursor.next, channel.cursor.log.visible)
    topic = <TopicState?> queue
    if topic.log is None or (topic.channels and not topic.log.held):
        return Unread(0, 0)
    return Unread(topic.log.visible if topic.channels else topic.place.next, topic.log.next)


def due_of(Channel channel not None, int64_t offset):
    """See the .pyi."""
    cdef int64_t due_ns
    if channel.cursor is None or offset < channel.cursor.next or offsets_have(&channel.cursor.skips, offset):
        return -1
    due_ns = channel.cursor.log.delay_of(offset)
    return due_ns if due_ns > monotonic_ns() else 0


def log_first(Channel channel not None):
    """See the .pyi."""
    return channel.log_first


def clock_shift(queue):
    """See the .pyi."""
    return wall_ns() - monotonic_ns()
