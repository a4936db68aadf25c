"""Looks at waiting messages without taking them: memory, disk queues, logs."""

cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from typing import NamedTuple

from nsqc.store.disk.queue cimport DiskQueue, buffered_records
from nsqc.store.disk.segment cimport (HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT, Block,
                                      WriteBuf, block_read, window_free)
from nsqc.store.log.positions cimport offsets_have
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Delivery, fifo_look, message_ref, message_unref
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16


# ====================================================================== peek
# Read-only pages of messages.

class Seen(NamedTuple):
    """A message as a page shows it."""

    id: bytes
    timestamp: int  # ns since 1970
    attempts: int
    size: int  # of the body, bytes
    body: bytes  # its beginning
    defer_ms: int  # of a message in a topic: its delay, not started yet


class Held(NamedTuple):
    """A message in flight or deferred."""

    due_ns: int  # monotonic
    tie: bytes  # breaks ties of the due time
    seen: Seen | None  # None: it is in the log, at `offset`
    attempts: int
    offset: int  # below 0: not from a log
    delivered_ns: int  # monotonic; in flight
    owner: int  # id of the consumer; 0: deferred


cdef enum:
    LOOK_NS = 1000000       # of a slice that copies
    FIND_NS = 2000000       # of a slice that only compares: enough for a million deliveries
    STEPS = 256             # between two clock reads
    TIE_BYTES = 16

cdef enum Part:             # of a HeapPeek's work
    HEAP
    FRONT
    DEFERRED
    AHEAD
    DONE


@cython.final
cdef class Page:
    """The contents of one answer."""

    def __init__(self, int64_t most, int64_t body_bytes, int64_t room):
        """Limits: the number of messages, bytes per body, and total bytes; the first message always fits."""
        self.messages = []
        self.left = most
        self.body_bytes = body_bytes
        self.room = room

    cdef bint is_full(self, int64_t size) noexcept:
        return self.left <= 0 or (len(self.messages) > 0 and min(size, self.body_bytes) > self.room)

    @property
    def full(self) -> bool:
        """Whether not even an empty message fits."""
        return self.left <= 0 or self.room <= 0

    cdef int add(self, Message *message, uint32_t attempts, uint32_t defer_ms) except -1:
        cdef int64_t shown = min(<int64_t> message.size, self.body_bytes)
        self.messages.append(Seen(message.id[:16], message.timestamp_ns, attempts, message.size, message.body[:shown],
                                  defer_ms))
        self.left -= 1
        self.room -= shown
        return 0

    def add_records(self, bytes data not None, int64_t at=0, int64_t skip=0) -> tuple[int, int]:
        """Adds whole records of a file, from a position in data on, omitting the first `skip`.

        Returns the position after the last record processed, and how many are still to be skipped.
        """
        cdef const char *c_data = PyBytes_AS_STRING(data)
        cdef const char *c_record
        cdef int64_t end = len(data), length, shown
        while at + HEAD_BYTES <= end:
            c_record = c_data + at
            length = SIZE_BYTES + <int64_t> load_i32(c_record)
            if length < HEAD_BYTES or length > end - at:
                break
            if skip > 0:
                skip -= 1
            else:
                if self.is_full(length - HEAD_BYTES):
                    break
                shown = min(length - HEAD_BYTES, self.body_bytes)
                self.messages.append(Seen(
                    c_record[RECORD_ID_AT:RECORD_ID_AT + TIE_BYTES], load_i64(c_record + RECORD_TIMESTAMP_AT),
                    load_u16(c_record + RECORD_ATTEMPTS_AT), length - HEAD_BYTES,
                    c_record[HEAD_BYTES:HEAD_BYTES + shown], 0))
                self.left -= 1
                self.room -= shown
            at += length
        return at, skip


# ---------------------------------------------------------------------- queues in memory

@cython.final
cdef class FifoPeek:
    """A walk through a queue in memory. Made by nsqc.broker.survey."""

    def __init__(self):
        raise TypeError("FifoPeek objects are made by FifoPeek.new()")

    @staticmethod
    cdef FifoPeek new(object owner, Fifo *fifo, int64_t at):
        cdef FifoPeek self = FifoPeek.__new__(FifoPeek)
        self.owner = owner
        self.fifo = fifo
        self.walk.at = at
        return self

    def run(self, Page page not None) -> bool:
        """Adds messages for one slice; False: more remain for this page."""
        cdef int64_t until = monotonic_ns() + LOOK_NS
        cdef Entry entry
        cdef int found
        while True:
            found = fifo_look(self.fifo, &self.walk, &entry)
            if found == 0 or (found == 1 and page.is_full(entry.message.size)):
                return True
            if found == 1:
                page.add(entry.message, entry.attempts, entry.defer_ms)
                self.walk.at += 1
            if monotonic_ns() >= until:
                return False

    @property
    def at(self) -> int:
        """The number of the next message."""
        return self.walk.at

    @property
    def ended(self) -> bool:
        """Whether the queue is empty."""
        return self.walk.at >= self.fifo.passed + self.fifo.first + self.fifo.count


# ---------------------------------------------------------------------- in flight, deferred

cdef inline bint is_before(Candidate *candidate, Candidate *other) noexcept:
    if candidate.due_ns != other.due_ns:
        return candidate.due_ns < other.due_ns
    return memcmp(candidate.tie, other.tie, TIE_BYTES) < 0


cdef inline bint is_over(int *steps, int64_t until_ns) noexcept:
    """Called after each step: whether the time is up, checked now and then."""
    steps[0] -= 1
    if steps[0] > 0:
        return False
    steps[0] = STEPS
    return monotonic_ns() >= until_ns


@cython.final
cdef class HeapPeek:
    """Finds the deliveries after a position in the order of their due times. Made by nsqc.broker.survey.

    All of them are examined, since a heap has no order that survives a change, but only one page is kept. A page found
    within one slice is exact; otherwise it may lack messages that the heap moves between two slices.
    """

    def __init__(self):
        raise TypeError("HeapPeek objects are made by HeapPeek.new()")

    @staticmethod
    cdef HeapPeek new(object owner, Heap *heap, Heap *front, Cursor cursor, int64_t after_ns, bytes after_tie,
                      int64_t most):
        cdef HeapPeek self = HeapPeek.__new__(HeapPeek)
        if most <= 0 or len(after_tie) != TIE_BYTES:
            raise ValueError("a page needs a positive size, and a position 16 bytes")
        self.owner = owner
        self.heap = heap
        self.front = front
        self.cursor = cursor
        self.most = most
        self.after.due_ns = after_ns
        memcpy(self.after.tie, PyBytes_AS_STRING(after_tie), TIE_BYTES)
        self.found = <Candidate *> calloc(<size_t> most, sizeof(Candidate))
        if self.found is NULL:
            raise MemoryError
        return self

    def __dealloc__(self):
        cdef int64_t index
        for index in range(self.count):
            if self.found[index].message is not NULL:
                message_unref(self.found[index].message)
        free(self.found)

    def run(self) -> bool:
        """Searches for one slice; False: not finished."""
        cdef int64_t until = monotonic_ns() + FIND_NS
        if self.part == HEAP and self._look_at_heap(self.heap, 0, until):
            self.part = FRONT
            self.at = 0
        if self.part == FRONT and (self.front is NULL or self._look_at_heap(self.front, monotonic_ns(), until)):
            self.part = DEFERRED if self.cursor is not None else DONE
            self.at = 0
        if self.part == DEFERRED and self._look_at_deferred(until):
            self.part = AHEAD
            self.at = 0
        if self.part == AHEAD and self._look_ahead(until):
            self.part = DONE
        return self.part == DONE

    cdef bint _look_at_heap(self, Heap *heap, int64_t after_ns, int64_t until_ns) except -1:
        """after_ns: those that are due later."""
        cdef Candidate candidate
        cdef Delivery *delivery
        cdef int64_t due_ns
        cdef int steps = STEPS
        while self.at < heap.count:
            due_ns = heap.items[self.at].deadline_ns
            # Most are ruled out by their time alone, without touching the delivery.
            if due_ns <= after_ns:
                pass
            elif due_ns >= self.after.due_ns and (self.count < self.most or due_ns <= self.found[0].due_ns):
                delivery = heap.items[self.at].delivery
                candidate.due_ns = due_ns
                memcpy(candidate.tie, delivery.message.id, TIE_BYTES)
                candidate.message = delivery.message
                candidate.offset = delivery.offset
                candidate.delivered_ns = delivery.delivered_ns
                candidate.owner = delivery.owner
                candidate.attempts = delivery.attempts
                self._offer(&candidate)
            elif due_ns > self.after.due_ns:
                self.beyond = True
            self.at += 1
            if is_over(&steps, until_ns):
                return False
        return True

    cdef bint _look_at_deferred(self, int64_t until_ns) except -1:
        cdef Candidate candidate
        cdef int steps = STEPS
        while self.at < self.cursor.deferred.count:
            offer_offset(self, &candidate, self.cursor.deferred.items[self.at].due_ns,
                         self.cursor.deferred.items[self.at].offset, self.cursor.deferred.items[self.at].attempts)
            self.at += 1
            if is_over(&steps, until_ns):
                return False
        return True

    cdef bint _look_ahead(self, int64_t until_ns) except -1:
        """Deferred messages that the cursor has not reached yet."""
        cdef TopicLog log = self.cursor.log
        cdef Candidate candidate
        cdef int64_t index, now = monotonic_ns()
        cdef int steps = STEPS
        self.at = max(self.at, self.cursor.next)
        index = log.delays.first + log.delays.count - log.delayed_from(self.at)
        while index < log.delays.first + log.delays.count:
            self.at = log.delays.items[index].offset
            if self.at >= log.visible:
                break
            if log.delays.items[index].due_ns > now and not offsets_have(&self.cursor.skips, self.at):
                offer_offset(self, &candidate, log.delays.items[index].due_ns, self.at, 0)
            self.at += 1
            index += 1
            if is_over(&steps, until_ns):
                return False
        return True

    cdef int _offer(self, Candidate *candidate) except -1:
        """Adds it if it is among the first after the position."""
        if not is_before(&self.after, candidate):
            return 0
        if self.count == self.most:
            self.beyond = True
            if not is_before(candidate, &self.found[0]):
                return 0
            if self.found[0].message is not NULL:
                message_unref(self.found[0].message)
            self.count -= 1
            sink(self.found, self.count, self.found[self.count])
        if candidate.message is not NULL:
            message_ref(candidate.message)
        rise(self.found, self.count, candidate[0])
        self.count += 1
        return 0

    def held(self, Page page not None) -> list[Held]:
        """The messages found, in order, as far as the page has room; those of a log without their bodies."""
        cdef Candidate candidate
        cdef int64_t index, left = self.count
        cdef list result = []
        cdef object seen
        while left:
            candidate = self.found[0]
            left -= 1
            sink(self.found, left, self.found[left])
            self.found[left] = candidate
        # Sorted now, and still owned by this object.
        for index in range(self.count):
            candidate = self.found[index]
            seen = None
            if candidate.message is not NULL:
                if page.is_full(candidate.message.size):
                    self.beyond = True
                    break
                page.add(candidate.message, candidate.attempts, 0)
                seen = page.messages[len(page.messages) - 1]
            result.append(Held(candidate.due_ns, candidate.tie[:TIE_BYTES], seen, candidate.attempts, candidate.offset,
                               candidate.delivered_ns, candidate.owner))
        return result


cdef int offer_offset(HeapPeek peek, Candidate *candidate, int64_t due_ns, int64_t offset, uint32_t attempts) except -1:
    """A deferred message of a log; its body is only in the log."""
    cdef char[TIE_BYTES + 1] tie
    if due_ns < peek.after.due_ns:
        return 0
    if peek.count == peek.most and due_ns > peek.found[0].due_ns:
        peek.beyond = True
        return 0
    memset(candidate, 0, sizeof(candidate[0]))
    snprintf(tie, TIE_BYTES + 1, b"%016llx", <unsigned long long> offset)
    memcpy(candidate.tie, tie, TIE_BYTES)
    candidate.due_ns = due_ns
    candidate.offset = offset
    candidate.attempts = attempts
    return peek._offer(candidate)


cdef void rise(Candidate *found, int64_t at, Candidate candidate) noexcept:
    """Pushes a candidate onto a heap of this size."""
    cdef int64_t parent
    while at > 0:
        parent = (at - 1) // 2
        if is_before(&candidate, &found[parent]):
            break
        found[at] = found[parent]
        at = parent
    found[at] = candidate


cdef void sink(Candidate *found, int64_t count, Candidate candidate) noexcept:
    """Replaces the top of a heap of this size."""
    cdef int64_t at = 0, child
    if count == 0:
        return
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and is_before(&found[child], &found[child + 1]):
            child += 1
        if not is_before(&candidate, &found[child]):
            break
        found[at] = found[child]
        at = child
    found[at] = candidate


# ====================================================================== peek
# Records of a disk queue, read-only.
#
# The caller reads them from files that the queue may finish and remove meanwhile; file numbers are not reused, so a
# position is valid as long as it is after the read position.

class Extent(NamedTuple):
    """Extent of a queue's records: file numbers, and positions in them."""

    read: tuple[int, int]
    write: tuple[int, int]
    read_count: int  # records before the read position since the daemon's start
    write_count: int  # records before the write position
    max_record: int  # bytes of the largest record


class Records(NamedTuple):
    """Consecutive whole records of a file."""

    begin: int  # position of the first; data before it is damaged
    end: int  # after the last; without records, where the data ends
    data: bytes  # empty: no records


cdef enum:
    COPIED_BYTES = 262144       # of a buffer, per call; at least one record


def extent(DiskQueue queue not None) -> Extent:
    """Extent of a queue's records in its files, now."""
    return Extent((queue.read_number, queue.read_at), (queue.write_number, queue.write_at),
                  queue.committed + buffered_records(queue) - queue.depth, queue.committed, queue.max_record)


def read(str path not None, int64_t at, int64_t limit, int64_t max_record, int64_t want) -> Records:
    """About `want` bytes of records at or after a position, at least one. For worker threads. Raises OSError.

    limit: the end of data; below 0: the file's own. max_record: bytes of the largest record.
    """
    cdef bytes name = os.fsencode(path)
    cdef const char *c_path = name
    cdef Block block
    memset(&block, 0, sizeof(block))
    with nogil:
        block_read(&block, c_path, at, limit, max_record, want)
    try:
        if block.answer < 0:
            raise OSError(-block.answer, os.strerror(-block.answer), path)
        if block.answer == 0:
            return Records(block.window.limit, block.window.limit, b"")
        begin = block.begin - block.window.start
        return Records(block.begin, block.end, block.window.c_data[begin:begin + block.end - block.begin])
    finally:
        window_free(&block.window)


def add_buffered(DiskQueue queue not None, Page page not None, int64_t skip) -> tuple[int, bool]:
    """Adds records that are not in a file yet, without the first `skip` of them.

    Returns the number of records added or skipped, and whether these were all.
    """
    cdef int64_t passed = 0
    cdef bint more = True
    if queue.writing is not NULL:
        more = add_buffer(&queue.writing.out, page, &skip, &passed)
    if more:
        more = add_buffer(&queue.kept, page, &skip, &passed)
    if more:
        more = add_buffer(&queue.out, page, &skip, &passed)
    return passed, more


cdef bint add_buffer(WriteBuf *out, Page page, int64_t *skip, int64_t *passed) except? False:
    """Whether the page still has room after adding all of it."""
    cdef int64_t at = out.taken, end, length, begin
    while at < out.length and skip[0] > 0:
        at += SIZE_BYTES + <int64_t> load_i32(out.c_data + at)
        skip[0] -= 1
        passed[0] += 1
    while at < out.length:
        begin = end = at
        while end < out.length:
            length = SIZE_BYTES + <int64_t> load_i32(out.c_data + end)
            if end > begin and end + length - begin > COPIED_BYTES:
                break
            end += length
        before = len(page.messages)
        added = page.add_records(out.c_data[begin:end])[0]
        passed[0] += len(page.messages) - before
        at += added
        if at < end:
            return False
    return True
