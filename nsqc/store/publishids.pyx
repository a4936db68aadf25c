"""Publish ids that topics remember. See the .pxd."""

cimport cython
import os
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from nsqc.store.log.frame cimport Buffer, buffer_free, buffer_room
from nsqc.store.siphash cimport nsqc_is_printable, nsqc_siphash


# ====================================================================== table

cdef enum:
    CHUNK_BITS = 8
    CHUNK = 256                 # entries
    FIRST_ROOM = 4              # chunks
    FIRST_SLOTS = 64
    TICK_BITS = 26              # a tick has 2^26 ns, 67 ms: 32 bits of them are nine years
    AT_ONCE = 4                 # most entries that a claim forgets
    MOVES = 8                   # most slots that a claim moves
    # Added to all times: an id from before the machine's last start is older than the clock.
    BIAS = 1 << 26
    NUMBER_BYTES = 8
    COMMIT_MASK = 0x1fffffff
    RING_BITS = 40              # numbers of one table

# A deleted slot in an array that is being moved: probes continue past it. No number ends in 32 zeros.
cdef uint64_t MOVED = 1 << 32
cdef int64_t next_table = 1


# ---------------------------------------------------------------------- slots

cdef extern from *:
    """
    #include <stdlib.h>
    #include <sys/mman.h>
    enum { NSQC_HUGE = 2 << 20 };       /* bytes of a huge page */

    /* Slots of zeros. Large arrays lie in huge pages, if the system has them: each lookup is at a random place. */
    static uint64_t *nsqc_slots_new(size_t count) {
        size_t size = count * sizeof(uint64_t), before;
        char *at;
        if (size < NSQC_HUGE)
            return calloc(count, sizeof(uint64_t));
        at = mmap(NULL, size + NSQC_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        before = -(uintptr_t) at & (NSQC_HUGE - 1);
        if (before)
            munmap(at, before);
        munmap(at + before + size, NSQC_HUGE - before);
        madvise(at + before, size, MADV_HUGEPAGE);
        return (uint64_t *) (at + before);
    }
    static void nsqc_slots_free(uint64_t *slots, size_t count) {
        if (slots && count * sizeof(uint64_t) >= NSQC_HUGE)
            munmap(slots, count * sizeof(uint64_t));
        else
            free(slots);
    }
    """
    uint64_t *nsqc_slots_new(size_t count) nogil
    void nsqc_slots_free(uint64_t *slots, size_t count) nogil


def sip(bytes key not None, bytes data not None, int compression=1, int finalization=3) -> bytes:
    """The hash of data, by default with the parameters for ids; key: 16 bytes. For tests."""
    cdef uint64_t words[2]
    cdef PublishId found
    memcpy(words, <const char *> key, 16)
    nsqc_siphash(words, data, len(data), compression, finalization, &found.low, &found.high)
    return (<char *> &found.low)[:8] + (<char *> &found.high)[:8]


cdef bint is_publish_id(const char *c_id, Py_ssize_t length) noexcept nogil:
    return 0 < length <= MOST_ID_BYTES and nsqc_is_printable(c_id, length)


# ---------------------------------------------------------------------- the table

cdef inline int64_t ticks_of(int64_t monotonic_ns) noexcept nogil:
    return (monotonic_ns >> TICK_BITS) + BIAS


cdef inline uint32_t commit_state(int64_t serial) noexcept nogil:
    return <uint32_t> (serial & COMMIT_MASK) << 3 | ID_COMMIT


@cython.final
cdef class PublishIds:
    """Ids of recent publishes."""

    def __init__(self, int64_t window_ns, int64_t limit, bytes key=None):
        """window_ns: how long an id is remembered. limit: the most ids. key: of the hash, 16 bytes; None: a random one.
        """
        global next_table
        if key is None:
            key = os.urandom(16)
        self.set_rule(window_ns, limit)
        memcpy(self.key, <const char *> key, 16)
        # Numbers of an earlier table of the same topic are invalid in this one.
        self.first = self.next = (next_table << RING_BITS) + 1
        next_table += 1

    def __dealloc__(self):
        cdef int64_t at
        for at in range(self.room):
            free(self.chunks[at])
        free(self.chunks)
        free(self.spare)
        free_slots(self)
        buffer_free(&self.collected)
        buffer_free(&self.under_way)

    cdef void set_rule(self, int64_t window_ns, int64_t limit) noexcept:
        self.window_ns = window_ns
        # Never shorter than requested: the current tick counts as a whole.
        self.window = (window_ns >> TICK_BITS) + 1
        self.limit = max(limit, <int64_t> 1)

    cdef void hash(self, const char *c_id, Py_ssize_t length, PublishId *id) noexcept nogil:
        nsqc_siphash(self.key, c_id, length, 1, 3, &id.low, &id.high)

    # ------------------------------------------------------------------ claims

    cdef int claim(self, const PublishId *id, int64_t now_ns, int64_t serial, int64_t *number) noexcept:
        cdef int64_t found, now = ticks_of(now_ns)
        cdef IdEntry *entry
        if self.first < self.next and now - self._entry(self.first).ticks > self.window:
            self.expire(now_ns, AT_ONCE)
        found = self._find(id)
        if found:
            entry = self._entry(found)
            if entry.state != ID_STORED or now - entry.ticks <= self.window:
                return self._verdict(entry, serial)
            self._void(entry, found)
        if self._reserve() < 0:
            return ID_NO_MEMORY
        self._append(id, now).state = ID_OPEN
        self.opened += 1
        number[0] = self.next - 1
        return ID_CLAIMED

    cdef int _verdict(self, const IdEntry *entry, int64_t serial) noexcept:
        if entry.state == ID_OPEN:
            return ID_TAKEN
        if entry.state == commit_state(serial):
            return ID_COLLECTED
        return ID_KNOWN if entry.state == ID_STORED else ID_RUNNING

    cdef bint is_open(self, int64_t number) noexcept:
        return self.first <= number < self.next and self._entry(number).state == ID_OPEN

    cdef void keep(self, int64_t number) noexcept:
        if self.is_open(number):
            self.opened -= 1
            self._entry(number).state = ID_STORED

    cdef void keep_if_collected(self, int64_t number, int64_t serial) noexcept:
        self._depend(number, serial, &self.collected)

    cdef void keep_if_running(self, int64_t number, int64_t serial) noexcept:
        self._depend(number, serial - 1, &self.under_way)

    cdef void _depend(self, int64_t number, int64_t serial, Buffer *numbers) noexcept:
        """A commit decides. Both buffers have room: see _reserve()."""
        if not self.is_open(number):
            return
        self.opened -= 1
        self._entry(number).state = commit_state(serial)
        (<int64_t *> (numbers.c_data + numbers.length))[0] = number
        numbers.length += NUMBER_BYTES

    cdef void release(self, int64_t number) noexcept:
        if not self.is_open(number):
            return
        self._void(self._entry(number), number)
        if number == self.next - 1:
            self.next = number      # refused publishes leave no entry

    cdef void commit_began(self) noexcept:
        cdef Buffer empty = self.under_way
        empty.length = 0
        self.under_way = self.collected
        self.collected = empty

    cdef void commit_ended(self, int error) noexcept:
        cdef int64_t at, number
        cdef IdEntry *entry
        self.failures += error != 0
        for at in range(0, self.under_way.length, NUMBER_BYTES):
            number = (<int64_t *> (self.under_way.c_data + at))[0]
            if number < self.first:
                continue
            entry = self._entry(number)
            if entry.state < ID_COMMIT:
                continue
            if error:
                self._void(entry, number)
            else:
                entry.state = ID_STORED
        self.under_way.length = 0

    cdef int restore(self, const PublishId *id, int64_t now_ns, int64_t age_ns) noexcept:
        cdef int64_t found = self._find(id)
        if found:
            self._void(self._entry(found), found)
        if self._reserve() < 0:
            return -1
        self._append(id, max(ticks_of(now_ns - age_ns), <int64_t> 0)).state = ID_STORED
        return 0

    # ------------------------------------------------------------------ expiry

    cdef bint expire(self, int64_t now_ns, int64_t most) noexcept:
        cdef int64_t now = ticks_of(now_ns)
        cdef const IdEntry *entry
        while self.first < self.next:
            entry = self._entry(self.first)
            if entry.state != ID_VOID and (entry.state != ID_STORED or now - entry.ticks <= self.window):
                break
            if most == 0:
                return True
            most -= 1
            self._drop_first()
        if self.first == self.next and self.slots is not NULL:
            self._free_all()
        return False

    cdef void _free_all(self) noexcept:
        """No id is remembered: an idle topic takes no memory."""
        cdef int64_t at
        for at in range(self.room):
            free(self.chunks[at])
        free(self.chunks)
        self.chunks = NULL
        self.room = 0
        free(self.spare)
        self.spare = NULL
        free_slots(self)
        if self.collected.length == 0:
            buffer_free(&self.collected)
        if self.under_way.length == 0:
            buffer_free(&self.under_way)

    cdef void _drop_first(self) noexcept:
        cdef IdEntry *entry = self._entry(self.first)
        cdef int64_t chunk
        if entry.state != ID_VOID:
            self._void(entry, self.first)
        self.first += 1
        if self.first & (CHUNK - 1) == 0:
            chunk = (self.first - 1) >> CHUNK_BITS & (self.room - 1)
            if self.spare is NULL:
                self.spare = self.chunks[chunk]
            else:
                free(self.chunks[chunk])
            self.chunks[chunk] = NULL

    cdef void _void(self, IdEntry *entry, int64_t number) noexcept:
        self._unslot(entry, number)
        self.opened -= entry.state == ID_OPEN
        entry.state = ID_VOID
        self.count -= 1

    # ------------------------------------------------------------------ entries

    cdef IdEntry *_entry(self, int64_t number) noexcept nogil:
        return &self.chunks[number >> CHUNK_BITS & (self.room - 1)][number & (CHUNK - 1)]

    cdef IdEntry *_append(self, const PublishId *id, int64_t ticks) noexcept:
        """A new entry; _reserve() has provided the memory."""
        cdef IdEntry *entry = self._entry(self.next)
        entry.id = id[0]
        entry.ticks = <uint32_t> ticks
        self._insert(id.low << 32 | <uint32_t> self.next)
        self.next += 1
        self.count += 1
        return entry

    cdef int _reserve(self) noexcept:
        """Reserves memory for one more id, whether it is kept or not; -1: no memory."""
        cdef int64_t need = (self.opened + 1) * NUMBER_BYTES
        cdef int _drop
        if self.slots is NULL and not self._begin():
            return -1
        for _drop in range(AT_ONCE):
            # Void entries take memory, too, until they are the oldest.
            if self.count < self.limit and self.next - self.first < 2 * self.limit:
                break
            self.forgotten += self._entry(self.first).state != ID_VOID
            self._drop_first()
        if self.next & (CHUNK - 1) == 0 and self._make_chunk() < 0:
            return -1
        if <uint32_t> self.next == 0:
            self._entry(self.next).state = ID_VOID      # a slot cannot refer to it
            self.next += 1
        # Numbers of a commit move to the other buffer with it.
        if self.collected.length + need > self.collected.room and buffer_room(&self.collected, need) < 0:
            return -1
        if self.under_way.length + need > self.under_way.room and buffer_room(&self.under_way, need) < 0:
            return -1
        if self.before is not NULL:
            self._move(MOVES)
        else:
            if 2 * self.count >= <int64_t> self.mask:
                return 0 if self._resize(2 * (<uint64_t> self.mask + 1)) else -1
            if 16 * self.count < <int64_t> self.mask and self.mask >= FIRST_SLOTS:
                self._resize((<uint64_t> self.mask + 1) // 4)
        return 0

    cdef bint _begin(self) noexcept:
        self.chunks = <IdEntry **> calloc(FIRST_ROOM, sizeof(IdEntry *))
        self.slots = <uint64_t *> calloc(FIRST_SLOTS, sizeof(uint64_t))
        if self.chunks is NULL or self.slots is NULL:
            free(self.chunks)
            free(self.slots)
            self.chunks = NULL
            self.slots = NULL
            return False
        self.room = FIRST_ROOM
        self.mask = FIRST_SLOTS - 1
        if self._make_chunk() < 0:
            self._free_all()
            return False
        return True

    cdef int _make_chunk(self) noexcept:
        """Provides the chunk of the next entry."""
        cdef IdEntry **grown
        cdef int64_t number, chunk = self.next >> CHUNK_BITS
        if self.chunks[chunk & (self.room - 1)] is not NULL and self.first >> CHUNK_BITS > chunk - self.room:
            return 0
        if self.first >> CHUNK_BITS <= chunk - self.room:
            grown = <IdEntry **> calloc(<size_t> (2 * self.room), sizeof(IdEntry *))
            if grown is NULL:
                return -1
            for number in range(self.first >> CHUNK_BITS, chunk):
                grown[number & (2 * self.room - 1)] = self.chunks[number & (self.room - 1)]
            free(self.chunks)
            self.chunks = grown
            self.room *= 2
        self.chunks[chunk & (self.room - 1)] = (
            self.spare if self.spare is not NULL else <IdEntry *> malloc(CHUNK * sizeof(IdEntry)))
        self.spare = NULL
        return -1 if self.chunks[chunk & (self.room - 1)] is NULL else 0

    # ------------------------------------------------------------------ slots

    cdef int64_t _find(self, const PublishId *id) noexcept nogil:
        cdef int64_t found = 0
        if self.slots is not NULL:
            found = self._find_in(id, self.slots, self.mask)
            if found == 0 and self.before is not NULL:
                found = self._find_in(id, self.before, self.before_mask)
        return found

    cdef int64_t _find_in(self, const PublishId *id, const uint64_t *slots, uint32_t mask) noexcept nogil:
        cdef uint32_t tag = <uint32_t> id.low, at = tag & mask
        cdef const IdEntry *entry
        while slots[at]:
            if slots[at] >> 32 == tag and slots[at] != MOVED:
                entry = self._entry(<int64_t> <uint32_t> slots[at])
                if entry.id.low == id.low and entry.id.high == id.high:
                    return self._number(<uint32_t> slots[at])
            at = at + 1 & mask
        return 0

    cdef int64_t _number(self, uint32_t low) noexcept nogil:
        """The number of an entry from its low half: all numbers in use lie within 2^32."""
        return self.first + <int64_t> <uint32_t> (low - <uint32_t> self.first)

    cdef void _insert(self, uint64_t slot) noexcept nogil:
        cdef uint32_t at = <uint32_t> (slot >> 32) & self.mask
        while self.slots[at]:
            at = at + 1 & self.mask
        self.slots[at] = slot

    cdef void _unslot(self, const IdEntry *entry, int64_t number) noexcept nogil:
        cdef uint64_t slot = entry.id.low << 32 | <uint32_t> number
        cdef uint32_t tag = <uint32_t> entry.id.low, at = tag & self.mask, next_, home
        while self.slots[at] and self.slots[at] != slot:
            at = at + 1 & self.mask
        if self.slots[at] == 0:
            at = tag & self.before_mask
            while self.before[at] and self.before[at] != slot:
                at = at + 1 & self.before_mask
            if self.before[at]:
                self.before[at] = MOVED
            return
        # Moves later entries up as far as allowed, so no probe meets a gap.
        next_ = at + 1 & self.mask
        while self.slots[next_]:
            home = <uint32_t> (self.slots[next_] >> 32) & self.mask
            if (next_ - home & self.mask) >= (next_ - at & self.mask):
                self.slots[at] = self.slots[next_]
                at = next_
            next_ = next_ + 1 & self.mask
        self.slots[at] = 0

    cdef bint _resize(self, uint64_t size) noexcept:
        cdef uint64_t *slots = nsqc_slots_new(<size_t> size)
        if slots is NULL:
            return self.count < <int64_t> self.mask - 1     # it still has room
        self.before = self.slots
        self.before_mask = self.mask
        self.slots = slots
        self.mask = <uint32_t> (size - 1)
        self.moved = 0
        return True

    cdef void _move(self, int64_t most) noexcept nogil:
        cdef int64_t end
        if self.before is NULL:
            return
        end = min(self.moved + most, <int64_t> self.before_mask + 1)
        while self.moved < end:
            if self.before[self.moved] and self.before[self.moved] != MOVED:
                self._insert(self.before[self.moved])
                self.before[self.moved] = MOVED
            self.moved += 1
        if self.moved > <int64_t> self.before_mask:
            nsqc_slots_free(self.before, <size_t> self.before_mask + 1)
            self.before = NULL

    cdef int64_t memory(self) noexcept:
        cdef int64_t chunks = ((self.next - 1 >> CHUNK_BITS) - (self.first >> CHUNK_BITS) + 1) if self.room else 0
        return (chunks * CHUNK * <int64_t> sizeof(IdEntry) + self.room * <int64_t> sizeof(IdEntry *)
                + (<int64_t> self.mask + 1) * 8 * (self.slots is not NULL)
                + (<int64_t> self.before_mask + 1) * 8 * (self.before is not NULL))


cdef void free_slots(PublishIds ids) noexcept nogil:
    nsqc_slots_free(ids.slots, <size_t> ids.mask + 1)
    nsqc_slots_free(ids.before, <size_t> ids.before_mask + 1)
    ids.slots = ids.before = NULL
    ids.mask = ids.before_mask = 0
