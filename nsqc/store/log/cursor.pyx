"""A channel's position in a log, and those of earlier logs. See the .pxd."""

cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from functools import partial
from libc.errno cimport EAGAIN, ENODATA, ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from nsqc.store.disk.fileio cimport Job
from nsqc.store.log.frame cimport RECORD_SIZE, frame_message
from nsqc.store.log.journal cimport FoundFiles
from nsqc.store.log.names import REMOVED, SETTLED
from nsqc.store.log.positions cimport (NO_ATTEMPTS, OP_ADVANCE, OP_DROP, OP_REQ, OP_RESET, OP_SKIP, TOPIC_NUMBER,
                                       ChannelState, Deferred, Range, RangeWalk, Requeued, deferred_first,
                                       deferred_free, deferred_least, deferred_pop, deferred_push, deferred_take,
                                       drop_before, drop_unused, offsets_add, offsets_free, offsets_from,
                                       offsets_next, offsets_remove, requeued_advance, requeued_first, requeued_free,
                                       requeued_least, requeued_pop, requeued_push, state_channel, state_free, use_add,
                                       use_end)
from nsqc.store.log.reading cimport (Reader, Spot, has_offset, known_damaged, reader_forget, reader_release, run_read,
                                     spot_find)
from nsqc.store.log.segment cimport FRAMES_AT, Segment, segments_find, segments_rank
from nsqc.store.log.topiclog cimport damage_found
from nsqc.store.memory cimport dated_ns
from nsqc.store.message cimport message_unref
from nsqc.store.work cimport STEPS


# ====================================================================== cursor

cdef enum:
    FIRST_WANT = 16384          # bytes of the first block; each further one is four times as large
    MOST_WANT = 262144
    AGAIN_WANT = 16384          # bytes of a block for requeued messages
    FORGOTTEN_AT_ONCE = 4096    # deferred messages checked between two looks at the clock

cdef enum:                      # results of Cursor._find_requeued()
    FOUND
    LATER                       # a read is running, or not possible now
    GONE                     # by retention
    DAMAGED

cdef int64_t NEVER = INT64_MAX


@cython.final
@cython.no_gc_clear
cdef class Cursor(Journaled):
    """The position of one channel in a log."""

    def __init__(self, TopicLog log not None, bytes name not None, StoreOwner owner not None, int64_t number,
                 int64_t next):
        """number: in the journal; below 0: not recorded there."""
        self.log = log
        self.recorder = log.recorder
        self.name = name
        self.owner = owner
        self.number = number
        self.next = self.journaled = next

    def __dealloc__(self):
        self.release()
        requeued_free(&self.requeued)
        deferred_free(&self.deferred)
        offsets_free(&self.skips)
        free(self.uses.items)

    # ------------------------------------------------------------------ delivery

    cdef bint pop(self, Entry *entry) noexcept:
        cdef Requeued *first
        cdef const char *c_record
        cdef Spot *spot
        cdef int taken, steps = STEPS
        if self.recorder.is_full():
            return False
        while True:
            if steps == 0:
                # A million deferred or removed requeued messages may come before the next one to deliver.
                if self.recorder.schedule.slicer.over():
                    self.owner.on_readable()
                    return False
                steps = STEPS
            steps -= 1
            first = requeued_first(&self.requeued)
            if first is not NULL and self.next >= min(first.after, self.log.visible):
                if not self._pop_requeued(entry):
                    return False
                if entry.message is NULL:
                    continue            # it is unreadable for good
                return True
            c_record = self._next_record(&spot)
            if c_record is NULL:
                return False
            taken = self._take_next(entry, spot, c_record)
            if taken >= 0:
                return taken

    cdef int _take_next(self, Entry *entry, Spot *spot, const char *c_record) noexcept:
        """Delivers the record at next, if it has one: 1; 0: no memory; -1: it is deferred, look again."""
        cdef int64_t due_ns = self.log.delay_of(self.next) if self.log.delays.count else 0
        if due_ns > self.log.clock.monotonic:
            self._advance(self.next + 1)
            if (not use_add(&self.uses, &self.log.segments, self.next - 1)
                    or self.defer(self.next - 1, 0, due_ns) < 0):
                self.next -= 1
                self.owner.on_unreadable()
                return 0
            return -1
        entry.message = frame_message(&spot.frame, c_record, spot.index)
        if entry.message is NULL or not use_add(&self.uses, &self.log.segments, self.next):
            if entry.message is not NULL:
                message_unref(entry.message)
            self.read_error = ENOMEM
            self.owner.on_unreadable()
            return 0
        entry.attempts = 0
        entry.defer_ms = 0
        self.offset = self.next
        self._advance(self.next + 1)
        return 1

    cdef bint pop_before(self, Entry *entry, int64_t before_ns, int64_t *oldest_ns) noexcept:
        cdef Requeued *first
        cdef const char *c_record
        cdef Spot *spot
        cdef int found, steps = STEPS
        oldest_ns[0] = NEVER
        if self.recorder.is_full():
            oldest_ns[0] = before_ns
            return False
        while True:
            if steps == 0 and self.recorder.schedule.slicer.over():
                self.owner.on_readable()
                return False
            steps = STEPS if steps == 0 else steps - 1
            first = requeued_first(&self.requeued)
            found = LATER if first is NULL else self._find_requeued(first.offset)
            if found == FOUND and dated_ns(self.log.clock, self.again.spot.frame.time_ns) > before_ns:
                oldest_ns[0] = dated_ns(self.log.clock, self.again.spot.frame.time_ns)
            elif found != LATER:
                if not self._pop_requeued(entry):
                    return False
                if entry.message is NULL:
                    continue
                return True
            c_record = self._next_record(&spot)
            if c_record is NULL:
                return False
            if dated_ns(self.log.clock, spot.frame.time_ns) > before_ns:
                oldest_ns[0] = min(oldest_ns[0], dated_ns(self.log.clock, spot.frame.time_ns))
                return False
            found = self._take_next(entry, spot, c_record)
            if found >= 0:
                return found

    cdef bint pop_exhausted(self, Entry *entry, uint32_t attempts) noexcept:
        cdef Requeued *first
        while not self.recorder.is_full():
            first = requeued_first(&self.requeued)
            if first is NULL or first.attempts < attempts or not self._pop_requeued(entry):
                return False
            if entry.message is not NULL:
                return True
        return False

    cdef void exhausted_first(self, uint32_t attempts) noexcept:
        requeued_advance(&self.requeued, attempts)

    cdef void _advance(self, int64_t next) noexcept:
        """Moves to the next record, or further."""
        self.next = next
        if not self.queued:
            self.mark_dirty()

    cdef bint _pop_requeued(self, Entry *entry) noexcept:
        """False: not readable now. entry.message is NULL if it never will be."""
        cdef Requeued item = requeued_first(&self.requeued)[0]
        cdef const char *c_record
        cdef int found = self._find_requeued(item.offset)
        entry.message = NULL
        if found == LATER:
            return False
        if found != FOUND:
            requeued_pop(&self.requeued)
            if found == DAMAGED:
                self._lost(item.offset, 1)
            self.done(item.offset)
            return True
        c_record = spot_find(&self.again.spot, self.again.block.memory.c_data + self.again.block.at, item.offset)
        entry.message = frame_message(&self.again.spot.frame, c_record, self.again.spot.index)
        if entry.message is NULL:
            self.read_error = ENOMEM
            self.owner.on_unreadable()
            return False
        requeued_pop(&self.requeued)
        entry.attempts = item.attempts
        entry.defer_ms = 0
        self.offset = item.offset
        return True

    cdef int _find_requeued(self, int64_t offset) noexcept:
        """Whether the block of `again` has the record of a requeued message; reads the block if necessary."""
        if offset < self.log.first_offset():
            return GONE
        if self.again.running:
            return LATER
        if not has_offset(&self.again, offset):
            if not known_damaged(&self.again, offset) and not self._read(&self.again, offset, AGAIN_WANT):
                return LATER
            if not has_offset(&self.again, offset):
                return DAMAGED
        spot_find(&self.again.spot, self.again.block.memory.c_data + self.again.block.at, offset)
        return FOUND

    cdef const char *_next_record(self, Spot **spot) noexcept:
        """The record at next, after moving next across skips and gaps, and its spot; NULL: none now."""
        cdef RangeWalk walk
        cdef Range *skip
        while True:
            if self.next >= self.log.visible:
                return NULL
            if self.next < self.log.first_offset():
                # Removed, even if the tail or a block still has it: records of a removed segment do not count.
                self._step_over(self.log.first_offset())
                continue
            if self.skips.count:
                memset(&walk, 0, sizeof(walk))
                skip = offsets_next(&self.skips, &walk)
                if skip.end <= self.next:
                    offsets_remove(&self.skips, skip.first, skip.end)
                    continue
                if skip.first <= self.next:
                    self._advance(min(skip.end, self.log.visible))
                    continue
            if self.log.tail.length and self.next >= self.log.tail_first:
                spot[0] = &self.tail
                return self._tail_record()
            if has_offset(&self.ahead, self.next) and not self.ahead.running:
                spot[0] = &self.ahead.spot
                return spot_find(spot[0], self.ahead.block.memory.c_data + self.ahead.block.at, self.next)
            if not self._read(&self.ahead, self.next, min(max(4 * self.ahead.block.want, <int64_t> FIRST_WANT),
                                                          <int64_t> MOST_WANT)):
                return NULL

    cdef const char *_tail_record(self) noexcept:
        if self.tail_serial != self.log.tail_serial:
            self.tail_serial = self.log.tail_serial
            memset(&self.tail, 0, sizeof(Spot))
            if self.ahead.block.memory.room:
                reader_release(&self.ahead)     # it has caught up
        return spot_find(&self.tail, self.log.tail.c_data, self.next)

    # ------------------------------------------------------------------ reading

    cdef bint _read(self, Reader *reader, int64_t offset, int64_t want) noexcept:
        """Reads a block from an offset on, or moves next across a gap; True: look again. False: a thread reads it, and
        on_readable() follows; or it is unreadable now."""
        cdef int64_t index
        cdef Segment *segment
        if reader.running:
            return False
        index = segments_find(&self.log.segments, offset)
        if index < 0 or offset >= self.log.segments.items[index].end:
            # Removed, or an offset that numbering skipped.
            if reader is &self.ahead and index + 1 < self.log.segments.count:
                self._step_over(self.log.segments.items[index + 1].first)
                return True
            return reader is &self.again
        segment = &self.log.segments.items[index]
        reader.block.job.run = run_read     # by a thread
        reader.block.job.bytes = 0
        reader.block.job.is_short = False
        reader.block.c_folder = PyBytes_AS_STRING(self.log.c_folder)
        if not (reader.block.first == segment.first and reader.block.next == offset and reader.block.after):
            reader.block.after = self.log.position_before(index, offset)
        if segment.remote and not self._has_fetched(reader, index, offset):
            return False
        reader.block.first = segment.first
        reader.block.remote = segment.remote
        reader.block.salt = segment.salt
        reader.block.limit = segment.position
        reader.block.end = segment.end
        reader.block.position = reader.block.after
        reader.block.offset = offset
        reader.block.want = want
        reader.block.cached = True
        self.log.read_now(&reader.block)
        if reader.block.error == EAGAIN:
            reader.block.cached = False
            reader.running = True
            reader.block.begin = reader.block.next = offset
            self.log.io.submit(&reader.block.job, self)
            return False
        return self._was_read(reader)

    cdef bint _has_fetched(self, Reader *reader, int64_t index, int64_t offset) noexcept:
        """Whether a remote segment is on the disk; else fetched() follows, as after a read by a thread."""
        cdef int here = self.log.is_here(index, partial(self.fetched, reader is &self.ahead))
        if here > 0:
            return True
        if here < 0:
            self._unreadable(ENODATA, "only the bucket has these messages: start with --bucket", offset)
            return False
        reader.running = True
        reader.block.offset = reader.block.begin = reader.block.next = offset
        return False

    def fetched(self, bint ahead, str why not None):
        """why: it could not be fetched; empty: it was."""
        cdef Reader *reader = &self.ahead if ahead else &self.again
        reader.running = reader.stale = False
        reader.block.begin = reader.block.next = -1
        if self.owner is None:
            return
        if why:
            self._unreadable(ENODATA, why, reader.block.offset)
        else:
            self.owner.on_readable()

    cdef void _unreadable(self, int error, str why, int64_t offset) noexcept:
        if error != self.read_error:
            self.log.log.error("LOG(%s): failed to read at offset %d - %s", self.log.name, offset, why)
        self.read_error = error
        self.owner.on_unreadable()

    cdef void job_done(self, Job *job) noexcept:
        cdef Reader *reader = &self.ahead if job is &self.ahead.block.job else &self.again
        reader.running = False
        if reader.stale or self.owner is None:
            reader.stale = False
            reader.block.begin = reader.block.next = -1
            if self.owner is not None:
                self.owner.on_readable()
            return
        if self._was_read(reader):
            self.owner.on_readable()

    cdef bint _was_read(self, Reader *reader) noexcept:
        """Checks the result of a read; False: nothing, and on_unreadable() was called."""
        cdef int64_t damaged = reader.block.damaged, first = reader.block.offset
        cdef int error = reader.block.error
        memset(&reader.spot, 0, sizeof(Spot))
        if error:
            reader.block.after = 0
            reader.block.begin = reader.block.next = -1
            if error == ENOENT and reader.block.remote:
                self.log.was_fetched(reader.block.first)
                return True
            if error == ENOENT and first < self.log.first_offset():
                return True         # removed meanwhile
            self._unreadable(error, os.strerror(error), first)
            return False
        if damaged and not reader.block.remote and self._is_remote(first):
            reader.block.begin = reader.block.next = -1
            return True             # its file was replaced by its header meanwhile
        self.read_error = 0
        if damaged and reader is &self.ahead:
            self._lost(first, damaged)
            self._step_over(first + damaged)
        return True

    cdef bint _is_remote(self, int64_t offset) noexcept:
        cdef int64_t index = segments_find(&self.log.segments, offset)
        return index >= 0 and self.log.segments.items[index].remote

    cdef void _step_over(self, int64_t next) noexcept:
        """Moves to an offset, as if all messages before it were finished."""
        cdef int64_t before = self.next
        self.add_fin(before, next)
        self.next = self.journaled = next

    cdef void _lost(self, int64_t first, int64_t count) noexcept:
        damage_found(self.log, first, first + count)
        self.log.log.error("LOG(%s): channel %s: %d damaged messages from offset %d on are skipped", self.log.name,
                           self.name.decode(), count, first)

    # ------------------------------------------------------------------ requeues

    cdef void done(self, int64_t offset) noexcept:
        use_end(&self.uses, offset)
        self.add_fin(offset, offset + 1)

    cdef bint _is_gone(self, int64_t offset) noexcept:
        """Whether retention removed a message that was in flight; then it is finished."""
        if offset >= self.log.first_offset():
            return False
        self.done(offset)
        return True

    cdef int put_back(self, int64_t offset, uint32_t attempts) noexcept:
        cdef Requeued item
        if self._is_gone(offset):
            return 0
        item.offset = offset
        item.after = self.log.next
        item.attempts = attempts
        if requeued_push(&self.requeued, &item) < 0:
            return -1
        self.add(OP_REQ, offset, 0, attempts)
        return 0

    cdef void came_back(self, int64_t offset, uint32_t attempts) noexcept:
        self.add(OP_REQ, offset, 0, attempts)

    cdef int defer(self, int64_t offset, uint32_t attempts, int64_t due_ns) noexcept:
        cdef Deferred item
        if self._is_gone(offset):
            return 0
        item.due_ns = due_ns
        item.offset = offset
        item.attempts = attempts
        if deferred_push(&self.deferred, &item) < 0:
            return -1
        self.add(OP_REQ, offset, due_ns - self.log.clock.monotonic + self.log.clock.wall, attempts)
        return 0

    cdef bint expire(self, int64_t now_ns, int most) noexcept:
        cdef Deferred *first
        cdef Requeued item
        while True:
            first = deferred_first(&self.deferred)
            if first is NULL or first.due_ns > now_ns:
                return True
            if most == 0:
                return False
            item.offset = first.offset
            item.after = self.log.next
            item.attempts = first.attempts
            if requeued_push(&self.requeued, &item) < 0:
                return True         # at the next deadline
            deferred_pop(&self.deferred)
            most -= 1

    cdef int64_t next_due(self) noexcept:
        cdef Deferred *first = deferred_first(&self.deferred)
        return first.due_ns if first is not NULL else 0

    cdef bint forget_removed(self) noexcept:
        cdef int64_t first = self.log.first_offset(), offset
        cdef int most = FORGOTTEN_AT_ONCE
        while requeued_first(&self.requeued) is not NULL and requeued_first(&self.requeued).offset < first:
            if most == 0:
                return True
            if self.recorder.is_full():
                return False        # at another time
            most -= 1
            offset = requeued_first(&self.requeued).offset
            requeued_pop(&self.requeued)
            self.done(offset)
        self.loses |= drop_before(&self.uses, first)
        if self.forgetting == 0 and self.loses:
            self.loses = False
            self.forgotten = first
            self.forgetting = self.deferred.count
        # Backwards: the item that moves into a freed slot is either already checked or next.
        while self.forgetting:
            self.forgetting = min(self.forgetting, self.deferred.count)
            if most == 0 or self.forgetting == 0:
                break
            most -= 1
            offset = self.deferred.items[self.forgetting - 1].offset
            if offset >= self.forgotten:
                self.forgetting -= 1
            elif self.recorder.is_full():
                return False
            else:
                deferred_take(&self.deferred, self.forgetting - 1)
                self.done(offset)
        return self.forgetting > 0

    # ------------------------------------------------------------------ moving

    cdef void reset(self, int64_t next) noexcept:
        forget(self)
        self.next = self.journaled = next
        self.add(OP_RESET, next, 0, 0)

    cdef void skip(self, int64_t first, int64_t end) noexcept:
        if end > max(first, self.next):
            first = max(first, self.next)
            if offsets_add(&self.skips, first, end) == 0:
                self.add(OP_SKIP, first, end, 0)

    cdef void drop(self) noexcept:
        forget(self)
        self.add(OP_DROP, 0, 0, 0)
        self.owner = None

    cdef void release_owner(self) noexcept:
        self.owner = None

    # ------------------------------------------------------------------ the journal

    cdef bint run(self) noexcept:
        if self.next != self.journaled:
            self.journaled = self.next
            self.add(OP_ADVANCE, self.next, 0, 0)
        return False

    cdef int64_t needed_from(self) noexcept:
        self.loses |= drop_before(&self.uses, self.log.first_offset())
        drop_unused(&self.uses)
        return min(self.uses.items[self.uses.first].first, self.next) if self.uses.count else self.next

    # ------------------------------------------------------------------ counts

    cdef bint is_drained(self) noexcept:
        return self.requeued.count == 0 and self.next >= self.log.visible

    cdef int64_t depth(self) noexcept:
        cdef int64_t visible = self.log.visible
        cdef int64_t waits = segments_rank(&self.log.segments, visible) - segments_rank(&self.log.segments, self.next)
        if self.next >= visible:
            return self.requeued.count
        return max(waits - delayed_ahead(self) - skipped_ahead(self, False), 0) + self.requeued.count

    cdef int64_t deferred_count(self) noexcept:
        return self.deferred.count + delayed_ahead(self)

    cdef int64_t least_waiting(self) noexcept:
        return deferred_least(&self.deferred, requeued_least(&self.requeued, self.next))

    cdef void release(self) noexcept:
        reader_release(&self.ahead)
        reader_release(&self.again)


cdef void forget(Cursor cursor) noexcept:
    """Forgets all delivered messages."""
    requeued_free(&cursor.requeued)
    deferred_free(&cursor.deferred)
    offsets_free(&cursor.skips)
    cursor.uses.first = cursor.uses.count = 0
    reader_forget(&cursor.ahead)
    reader_forget(&cursor.again)


cdef int64_t skipped_ahead(Cursor cursor, bint only_delayed) noexcept:
    """Visible messages from next on that are skipped."""
    cdef RangeWalk walk = offsets_from(&cursor.skips, cursor.next)
    cdef Range *skip = offsets_next(&cursor.skips, &walk)
    cdef int64_t count = 0, first, end
    while skip is not NULL and skip.first < cursor.log.visible:
        first = max(skip.first, cursor.next)
        end = min(skip.end, cursor.log.visible)
        count += cursor.log.delayed_from(first) - cursor.log.delayed_from(end) if only_delayed else end - first
        skip = offsets_next(&cursor.skips, &walk)
    return count


cdef int64_t delayed_ahead(Cursor cursor) noexcept:
    """Messages from next on that are delayed and not skipped."""
    if cursor.log.delays.count == 0 or cursor.next >= cursor.log.visible:
        return 0
    return (cursor.log.delayed_from(cursor.next) - cursor.log.delayed_from(cursor.log.visible)
            - skipped_ahead(cursor, True))


# ====================================================================== earlier
# Restores cursors at the start: unfinished messages of an earlier run wait again.

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
    def channels(self) -> list[bytes]:
        """Names of the channels."""
        return [name for name in self.numbers if name != SETTLED]

    @property
    def topic_cursor(self) -> int | None:
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

    def states(self) -> list[tuple[int, str, int, Ranges, Ranges, list[tuple[int, int, int]]]]:
        """Number, name ("": lost), cursor, unfinished ranges, finished ranges ahead, waiting (offset, attempts, due) of
        each channel, ephemeral ones excluded."""
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
