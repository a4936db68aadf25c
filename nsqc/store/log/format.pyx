"""Index entries, index heads and due times: stored, loaded and checked. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy

from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

# For Python.
INDEX_HEAD = INDEX_HEAD_BYTES
INDEX_ENTRY = ENTRY_BYTES
DUE_ENTRY = DUE_BYTES
TIME_UNIT = 1 << TIME_SHIFT
LARGEST_SEGMENT = MOST_SEGMENT

cdef const char *INDEX_MAGIC = b"NSQCIDX1"

cdef enum:
    MAGIC_BYTES = 8


cdef uint32_t entry_check(const char *c_entry, int64_t offset) noexcept nogil:
    cdef char data[20]
    store_i64(data, offset)
    memcpy(data + 8, c_entry, 12)
    return crc32c(<const unsigned char *> data, 20)


cdef void entry_store(char *c_to, int64_t offset, IndexEntry *entry) noexcept nogil:
    store_i32(c_to, <int> (<uint32_t> entry.position | (MORE if entry.more else 0)))
    store_i32(c_to + 4, <int> entry.time)
    store_i32(c_to + 8, <int> entry.crc)
    store_i32(c_to + 12, <int> entry_check(c_to, offset))


cdef bint entry_load(const char *c_from, int64_t offset, IndexEntry *entry) noexcept nogil:
    cdef uint32_t position = <uint32_t> load_i32(c_from)
    entry.position = position & ~MORE
    entry.more = (position & MORE) != 0
    entry.time = <uint32_t> load_i32(c_from + 4)
    entry.crc = <uint32_t> load_i32(c_from + 8)
    return <uint32_t> load_i32(c_from + 12) == entry_check(c_from, offset)


cdef bint entry_blank(const char *c_from) noexcept nogil:
    return load_i64(c_from) == 0 and load_i64(c_from + 8) == 0


cdef void head_store(char *c_to, IndexHead *head) noexcept nogil:
    memcpy(c_to, INDEX_MAGIC, MAGIC_BYTES)
    store_i64(c_to + 8, head.first)
    store_i64(c_to + 16, head.base_ns)
    store_i32(c_to + 24, <int> head.unsynced)
    store_i32(c_to + 28, <int> crc32c(<const unsigned char *> c_to, 28))


cdef bint head_load(const char *c_from, IndexHead *head) noexcept nogil:
    head.first = load_i64(c_from + 8)
    head.base_ns = load_i64(c_from + 16)
    head.unsynced = <uint32_t> load_i32(c_from + 24)
    return (memcmp(c_from, INDEX_MAGIC, MAGIC_BYTES) == 0
            and <uint32_t> load_i32(c_from + 28) == crc32c(<const unsigned char *> c_from, 28))


cdef void due_store(char *c_to, DueEntry *entry) noexcept nogil:
    store_i64(c_to, entry.offset)
    store_i64(c_to + 8, entry.due_ns)
    store_i32(c_to + 16, <int> entry.delay_ms)
    store_i32(c_to + 20, <int> crc32c(<const unsigned char *> c_to, 20))


cdef bint due_load(const char *c_from, DueEntry *entry) noexcept nogil:
    entry.offset = load_i64(c_from)
    entry.due_ns = load_i64(c_from + 8)
    entry.delay_ms = <uint32_t> load_i32(c_from + 16)
    return <uint32_t> load_i32(c_from + 20) == crc32c(<const unsigned char *> c_from, 20)


def checksum(const unsigned char[::1] data not None) -> int:
    """CRC-32C of bytes."""
    return crc32c(&data[0], len(data)) if len(data) else 0
