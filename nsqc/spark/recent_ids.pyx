"""A bounded set of message ids, each with the number of its nsqd."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    ID_BYTES = 16


cdef inline uint32_t spread(Key *key) noexcept:
    cdef uint64_t mixed = (key.high ^ (key.low * <uint64_t> 0x9E3779B97F4A7C15)) + key.node
    mixed = (mixed ^ (mixed >> 32)) * <uint64_t> 0xD6E8FEB86659FD93
    return <uint32_t> (mixed >> 32)


cdef inline void load(Key *key, const unsigned char *c_id, uint32_t node) noexcept:
    memcpy(&key.high, c_id, 8)
    memcpy(&key.low, c_id + 8, 8)
    key.node = node


@cython.final
cdef class RecentIds:
    """Remembers the last capacity ids (1 to 2^26), each with the number of its nsqd. Uses about 32 bytes of memory per
    id."""

    def __cinit__(self, uint32_t capacity):
        cdef uint32_t size = 16
        if not 1 <= capacity <= 1 << 26:
            raise ValueError("capacity is 1 to 2^26")
        while size < 2 * capacity:
            size *= 2
        self.capacity = capacity
        self.mask = size - 1
        self.c_ring = <Key *> calloc(capacity, sizeof(Key))
        self.c_table = <uint32_t *> calloc(size, sizeof(uint32_t))
        if self.c_ring is NULL or self.c_table is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.c_ring)
        free(self.c_table)

    cdef uint32_t find(self, Key *key) noexcept:
        cdef uint32_t place = spread(key) & self.mask
        cdef Key *known
        while self.c_table[place]:
            known = self.c_ring + self.c_table[place] - 1
            if known.high == key.high and known.low == key.low and known.node == key.node:
                break
            place = (place + 1) & self.mask
        return place

    cdef void forget(self, uint32_t place) noexcept:
        """Frees a slot of the table and moves up keys displaced by it."""
        cdef uint32_t hole = place, home
        while True:
            self.c_table[hole] = 0
            while True:
                place = (place + 1) & self.mask
                if not self.c_table[place]:
                    return
                home = spread(self.c_ring + self.c_table[place] - 1) & self.mask
                if ((place - home) & self.mask) >= ((place - hole) & self.mask):
                    break
            self.c_table[hole] = self.c_table[place]
            hole = place

    cdef bint add(self, Key *key) noexcept:
        """Adds a key; returns whether it is new."""
        cdef uint32_t place = self.find(key)
        if self.c_table[place]:
            return False
        if self.count == self.capacity:
            self.forget(self.find(self.c_ring + self.next))
            self.count -= 1
            place = self.find(key)
        self.c_ring[self.next] = key[0]
        self.c_table[place] = self.next + 1
        self.next = (self.next + 1) % self.capacity
        self.count += 1
        return True

    def remember(self, const unsigned char[::1] ids not None, uint32_t node):
        """Adds ids (16 bytes each); a byte for each: 1 if it is new, 0 if it was known."""
        cdef Py_ssize_t at, count = ids.shape[0] // ID_BYTES
        cdef bytearray fresh = bytearray(count)
        cdef unsigned char[::1] flags = fresh
        cdef Key key
        if ids.shape[0] % ID_BYTES:
            raise ValueError("ids have 16 bytes")
        for at in range(count):
            load(&key, &ids[at * ID_BYTES], node)
            flags[at] = self.add(&key)
        return fresh

    def known(self, const unsigned char[::1] ids not None, uint32_t node):
        """A byte for each of the ids: 1 if it is known."""
        cdef Py_ssize_t at, count = ids.shape[0] // ID_BYTES
        cdef bytearray is_known = bytearray(count)
        cdef unsigned char[::1] flags = is_known
        cdef Key key
        for at in range(count):
            load(&key, &ids[at * ID_BYTES], node)
            flags[at] = self.c_table[self.find(&key)] != 0
        return is_known

    def __len__(self):
        return self.count
