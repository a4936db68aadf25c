"""Restores cursors at the start: unfinished messages of an earlier run wait again. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memset
from cpython.bytes cimport PyBytes_FromStringAndSize

from nsqc.store.log.frame cimport RECORD_SIZE
from nsqc.store.log.journal cimport ChannelState, state_channel, state_free
from nsqc.store.log.journalfile cimport FoundFiles
from nsqc.store.log.offsets cimport NO_ATTEMPTS, Range, RangeWalk, offsets_next, offsets_remove
from nsqc.store.log.ops cimport OP_REQ, OP_RESET, TOPIC_NUMBER
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.segments cimport Segment, segments_find
from nsqc.store.log.uses cimport use_add
from nsqc.store.log.waiting cimport Deferred, Requeued, deferred_push, requeued_push

from nsqc.store.log.names import REMOVED, SETTLED

NO_NUMBER = -1

cdef enum:
    KEPT_FILES = 2              # of a journal: one with the state, one for later operations
    REMOVED_AT = 7              # in Earlier.journal


@cython.final
cdef class TopicPlace(Journaled):
    """The first offset that no channel may read yet."""

    def __init__(self, TopicLog log not None, int64_t next):
        self.recorder = log.recorder
        self.number = TOPIC_NUMBER
        self.next = next

    cdef void move(self, int64_t next) noexcept:
        if next != self.next:
            self.next = next
            self.add(OP_RESET, next, 0, 0)


@cython.final
cdef class Earlier:
    """The contents of a folder's journal."""

    def __dealloc__(self):
        state_free(&self.state)

    @property
    def channels(self) -> list:
        """Names of the channels."""
        return [name for name in self.numbers if name != SETTLED]

    @property
    def topic_cursor(self):
        """The first offset that is hidden from channels; None: unknown."""
        cdef ChannelState *topic = state_channel(&self.state, TOPIC_NUMBER)
        return topic.cursor if topic is not NULL else None

    @property
    def reached(self) -> int:
        """The highest offset that a channel continues at: new messages have higher or equal ones."""
        cdef int64_t index, highest = 0
        for index in range(self.state.count):
            if self.state.channels[index].number != TOPIC_NUMBER:
                highest = max(highest, self.state.channels[index].cursor)
        return highest

    def states(self) -> list:
        """See the .pyi."""
        cdef int64_t index
        return [channel_tuple(self.state.channels[index]) for index in range(self.state.count)
                if self.state.channels[index].number not in (TOPIC_NUMBER, self.journal[REMOVED_AT])]

    cdef Cursor cursor(self, TopicLog log, bytes name, StoreOwner owner):
        cdef ChannelState *state
        cdef Cursor cursor
        if name not in self.numbers:
            return None
        state = state_channel(&self.state, self.numbers[name])
        cursor = Cursor(log, name, owner, state.number, min(state.cursor, log.next))
        log.clock.refresh()
        cursor.skips, state.skips = state.skips, cursor.skips
        # Messages that the log does not have are not finished: later ones may get these offsets.
        if offsets_remove(&cursor.skips, log.next, INT64_MAX) < 0:
            raise MemoryError
        restore(cursor, state)
        return cursor


cdef Earlier make_earlier(JournalState *state, const FoundFiles *files):
    cdef Earlier earlier = Earlier.__new__(Earlier)
    cdef ChannelState *channel
    cdef int64_t index
    earlier.state = state[0]
    memset(state, 0, sizeof(JournalState))
    earlier.damaged = earlier.state.damaged
    earlier.torn_bytes = files.torn_bytes
    earlier.files = [(files.items[index].number, files.items[index].damaged) for index in range(files.count)]
    earlier.numbers = {}
    for index in range(earlier.state.count):
        channel = earlier.state.channels[index]
        if channel.name_bytes:
            earlier.numbers[PyBytes_FromStringAndSize(channel.name, channel.name_bytes)] = channel.number
    removed = earlier.numbers.pop(REMOVED, NO_NUMBER)
    if removed != NO_NUMBER:
        earlier.removed_to = state_channel(&earlier.state, removed).cursor
    index = earlier.state.count
    earlier.journal = ([number for number, _ in earlier.files], files.last.number, files.last.begins,
                       files.last.position, earlier.state.at + 1, files.state_bytes,
                       earlier.state.channels[index - 1].number + 1 if index else 1,
                       removed, earlier.damaged > 0 or files.count > KEPT_FILES)
    return earlier


cdef tuple channel_tuple(const ChannelState *channel):
    cdef RangeWalk walk
    cdef const Range *found
    cdef int64_t offset
    out, waiting, skips = [], [], []
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.out, &walk)
    while found is not NULL:
        if found.attempts == NO_ATTEMPTS:
            out.append((found.first, found.end))
        else:
            waiting += [(offset, found.attempts, found.due_ns) for offset in range(found.first, found.end)]
        found = offsets_next(&channel.out, &walk)
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.skips, &walk)
    while found is not NULL:
        skips.append((found.first, found.end))
        found = offsets_next(&channel.skips, &walk)
    return (channel.number, channel.name[:channel.name_bytes].decode("ascii", "replace"), channel.cursor, out, skips,
            waiting)


# ---------------------------------------------------------------------- unfinished messages

cdef int restore(Cursor cursor, ChannelState *state) except -1:
    """Unfinished messages wait first, by offset, or until they are due, if the log has them."""
    cdef RangeWalk walk
    cdef Range *out
    cdef int64_t index
    memset(&walk, 0, sizeof(walk))
    out = offsets_next(&state.out, &walk)
    while out is not NULL:
        for index in range(max(segments_find(&cursor.log.segments, out.first), 0), cursor.log.segments.count):
            if cursor.log.segments.items[index].first >= out.end:
                break
            restore_in(cursor, &cursor.log.segments.items[index], out)
        out = offsets_next(&state.out, &walk)
    return 0


cdef int restore_in(Cursor cursor, const Segment *segment, const Range *out) except -1:
    """Those in a segment; those that its file is too short for are lost."""
    cdef int64_t first = max(out.first, segment.first), end = min(out.end, segment.end), offset
    cdef int64_t held = min(end, segment.first + (segment.position - FRAMES_AT) // RECORD_SIZE)
    for offset in range(first, held):
        wait_again(cursor, offset, <uint32_t> (out.attempts if out.attempts >= 0 else 1),
                   due_again(cursor, offset, out) if out.due_ns > cursor.log.clock.wall else 0)
    if max(first, held) < end:
        cursor._lost(max(first, held), end - max(first, held))
    return 0


cdef int64_t due_again(Cursor cursor, int64_t offset, const Range *out) noexcept:
    """The monotonic time it is due: if the clock has jumped, at most one full delay away, which is recorded."""
    cdef TopicLog log = cursor.log
    cdef int64_t due_ns = log.clock.monotonic + min(out.due_ns - log.clock.wall, log.longest_delay_ns), asked_ns
    if out.attempts == 0:
        asked_ns = log.delay_of(offset)
        if asked_ns:
            due_ns = min(due_ns, asked_ns)
    if due_ns - log.clock.monotonic < out.due_ns - log.clock.wall:
        cursor.add(OP_REQ, offset, due_ns - log.clock.monotonic + log.clock.wall, <uint32_t> out.attempts)
    return due_ns


cdef int wait_again(Cursor cursor, int64_t offset, uint32_t attempts, int64_t due_ns) except -1:
    cdef Requeued item
    cdef Deferred deferred
    cdef int error
    if due_ns:
        deferred.due_ns, deferred.offset, deferred.attempts = due_ns, offset, attempts
        error = deferred_push(&cursor.deferred, &deferred)
    else:
        item.offset, item.after, item.attempts = offset, 0, attempts
        error = requeued_push(&cursor.requeued, &item)
    if error or not use_add(&cursor.uses, &cursor.log.segments, offset):
        raise MemoryError
    return 0


cdef Cursor new_cursor(TopicLog log, bytes name, StoreOwner owner, bint ephemeral, int64_t start):
    cdef Cursor cursor
    if ephemeral:
        return Cursor(log, name, owner, NO_NUMBER, start)
    cursor = Cursor(log, name, owner, log.recorder.next_number, start)
    log.recorder.next_number += 1
    cursor.add_name(name)
    cursor.add(OP_RESET, start, 0, 0)
    return cursor
