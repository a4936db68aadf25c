"""Redriven or dropped dead letters. See the .pxd and the .pyi."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.broker.topicstate cimport TopicState
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.earlier cimport new_cursor
from nsqc.store.log.offsets cimport Range, RangeWalk, offsets_from, offsets_next, offsets_remove
from nsqc.store.log.segments cimport segments_rank

from nsqc.store.log.names import SETTLED

cdef bytes NAME = SETTLED


cdef int restore_settled(TopicState topic) except -1:
    topic.settled = None if topic.earlier is None else topic.earlier.cursor(topic.log, NAME, topic)
    return 0


cdef int64_t begin_of(TopicState topic) noexcept:
    """The first offset that may be unsettled."""
    cdef int64_t first = topic.log.first_offset()
    return first if topic.settled is None else max(first, topic.settled.next)


def waiting(TopicState topic not None):
    """See the .pyi."""
    cdef int64_t begin = begin_of(topic), count
    cdef RangeWalk walk
    cdef Range *skip
    count = segments_rank(&topic.log.segments, topic.log.next) - segments_rank(&topic.log.segments, begin)
    if topic.settled is None:
        return count
    walk = offsets_from(&topic.settled.skips, begin)
    skip = offsets_next(&topic.settled.skips, &walk)
    while skip is not NULL:
        count -= (segments_rank(&topic.log.segments, min(skip.end, topic.log.next))
                  - segments_rank(&topic.log.segments, max(skip.first, begin)))
        skip = offsets_next(&topic.settled.skips, &walk)
    return max(count, 0)


def unsettled(TopicState topic not None, int64_t offset):
    """See the .pyi."""
    cdef int64_t first = max(offset, begin_of(topic)), end = topic.log.next
    cdef RangeWalk walk
    cdef Range *skip
    if topic.settled is not None:
        walk = offsets_from(&topic.settled.skips, first)
        skip = offsets_next(&topic.settled.skips, &walk)
        while skip is not NULL and skip.first <= first:
            first = max(first, skip.end)
            skip = offsets_next(&topic.settled.skips, &walk)
        if skip is not NULL:
            end = min(end, skip.first)
    return (first, end) if first < end else None


def settle(TopicState topic not None, list offsets not None):
    """See the .pyi."""
    cdef int64_t first = -1, end = -1, offset
    if topic.settled is None:
        topic.settled = new_cursor(topic.log, NAME, topic, False, topic.log.first_offset())
    for offset in offsets:
        if offset != end:
            topic.settled.skip(first, end)
            first = offset
        end = offset + 1
    topic.settled.skip(first, end)
    trim(topic.settled)
    if not topic.channels and not topic.log.held and topic.settled.next > topic.place.next:
        topic.place.move(topic.settled.next)        # retention may remove settled messages
        topic.owner.on_aging(topic)


cdef void trim(Cursor cursor) noexcept:
    """Moves the cursor over settled and removed messages, so that these need no range."""
    cdef RangeWalk walk
    cdef Range *skip
    if cursor.next < cursor.log.first_offset():
        cursor._step_over(cursor.log.first_offset())
    while cursor.skips.count:
        memset(&walk, 0, sizeof(walk))
        skip = offsets_next(&cursor.skips, &walk)
        if skip.end <= cursor.next:
            offsets_remove(&cursor.skips, skip.first, skip.end)
        elif skip.first <= cursor.next:
            cursor._advance(skip.end)
        else:
            break
