# How a log lies on disk: see docs/ondisk.md. Numbers are big-endian.

from libc.stdint cimport int64_t, uint32_t

from nsqc.wire.hton cimport load_i32

cdef enum:
    INDEX_HEAD_BYTES = 32   # magic, first offset, base time, unsynced, crc32c
    ENTRY_BYTES = 16        # position, time, crc32c of the record, check
    DUE_BYTES = 24          # offset, due time, delay, crc32c
    TIME_SHIFT = 24         # times in an index are in units of 2^24 ns since the base time
    MOST_SEGMENT = 2147483647   # bytes of a segment: positions have 31 bits

cdef extern from *:
    """
    #define NSQC_MORE 0x80000000u
    """
    const uint32_t MORE "NSQC_MORE"     # in a position: the batch continues with the next record

cdef extern from *:
    """
    #define NSQC_MOST_OFFSET (1LL << 62)
    #define NSQC_FARTHEST (1LL << 61)
    #define NSQC_FULL_FROM ((1LL << 62) - (1LL << 32))
    """
    const int64_t MOST_OFFSET "NSQC_MOST_OFFSET"    # that a segment may begin with; see names.py, too
    const int64_t FARTHEST "NSQC_FARTHEST"          # that one may begin with, whatever its index says; see strays.py
    # Publishes are refused from here on: what is accepted until that is noticed has no offset above MOST_OFFSET.
    const int64_t FULL_FROM "NSQC_FULL_FROM"

cdef struct IndexEntry:
    int64_t position        # of the record in its segment
    bint more               # the batch continues
    uint32_t time           # in units of 2^TIME_SHIFT ns since the base time; never falls
    uint32_t crc            # of the record


cdef void entry_store(char *c_to, int64_t offset, IndexEntry *entry) noexcept nogil
cdef bint entry_load(const char *c_from, int64_t offset, IndexEntry *entry) noexcept nogil     # False: damaged
cdef bint entry_blank(const char *c_from) noexcept nogil       # True: it never reached the disk, so nor need its record

# What an entry says that may be damaged: a record that fits it is sound all the same.
cdef inline int64_t entry_position(const char *c_entry) noexcept nogil:
    return <int64_t> (<uint32_t> load_i32(c_entry) & ~MORE)

cdef inline uint32_t entry_crc(const char *c_entry) noexcept nogil:
    return <uint32_t> load_i32(c_entry + 8)

cdef struct IndexHead:
    int64_t first               # offset of the segment's first record
    int64_t base_ns             # of the times in the entries
    uint32_t unsynced           # see docs/ondisk.md; 0: not known

cdef void head_store(char *c_to, IndexHead *head) noexcept nogil
cdef bint head_load(const char *c_from, IndexHead *head) noexcept nogil     # False: damaged

cdef struct DueEntry:
    int64_t offset
    int64_t due_ns              # since 1970
    uint32_t delay_ms           # that was asked for; 0: unknown

cdef void due_store(char *c_to, DueEntry *entry) noexcept nogil
cdef bint due_load(const char *c_from, DueEntry *entry) noexcept nogil      # False: damaged
