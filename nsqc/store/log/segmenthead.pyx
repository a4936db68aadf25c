"""Headers of segments. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_read
from nsqc.store.log.frame cimport MOST_OFFSET, is_offset
from nsqc.store.log.newfile cimport newfile_make
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

cdef const char *SEGMENT_MAGIC = b"NSQCLOG\n"

cdef enum:
    MAGIC_BYTES = 8
    NUMBERS_AT = 16
    CRC_AT = HEAD_ROOM - 4


cdef void numbers_store(char *c_to, const char *c_magic, const void *numbers, int bytes) noexcept nogil:
    cdef const int64_t *c_numbers = <const int64_t *> numbers
    cdef int index
    memset(c_to, 0, HEAD_ROOM)
    memcpy(c_to, c_magic, MAGIC_BYTES)
    store_i32(c_to + MAGIC_BYTES, SEGMENT_VERSION)
    for index in range(bytes // 8):
        store_i64(c_to + NUMBERS_AT + 8 * index, c_numbers[index])
    store_i32(c_to + CRC_AT, <int> crc32c(<const unsigned char *> c_to, CRC_AT))


cdef HeadCheck numbers_load(const char *c_from, const char *c_magic, void *numbers, int bytes) noexcept nogil:
    cdef int64_t *c_numbers = <int64_t *> numbers
    cdef int index
    if (memcmp(c_from, c_magic, MAGIC_BYTES)
            or <uint32_t> load_i32(c_from + CRC_AT) != crc32c(<const unsigned char *> c_from, CRC_AT)):
        return HEAD_DAMAGED
    if load_i32(c_from + MAGIC_BYTES) != SEGMENT_VERSION or load_i32(c_from + MAGIC_BYTES + 4):
        return HEAD_UNKNOWN
    for index in range(bytes // 8):
        c_numbers[index] = load_i64(c_from + NUMBERS_AT + 8 * index)
    return HEAD_SOUND


cdef HeadCheck head_load(const char *c_copy, SegmentHead *head) noexcept nogil:
    cdef HeadCheck answer = numbers_load(c_copy, SEGMENT_MAGIC, head, sizeof(SegmentHead))
    if answer == HEAD_SOUND and not (
            0 < head.sequence < MOST_OFFSET and is_offset(head.first) and is_offset(head.before_position)
            and 0 <= head.before_end <= head.first and head.before_due_ns >= 0 and head.before_time_ns >= 0
            and is_offset(head.durable_from)):
        return HEAD_DAMAGED
    head.before_records = max(min(head.before_records, head.first), <int64_t> 0)    # only counted
    return answer


cdef int head_read(int fd, SegmentHead *head) noexcept nogil:
    cdef char c_block[FRAMES_AT]
    cdef int64_t got = io_read(fd, c_block, FRAMES_AT, 0)
    cdef HeadCheck answer
    if got < 0:
        return <int> got
    memset(c_block + got, 0, <size_t> (FRAMES_AT - got))
    answer = head_load(c_block, head)
    return head_load(c_block + COPY_AT, head) if answer == HEAD_DAMAGED else answer


cdef int segment_make(const char *c_folder, const SegmentHead *head, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_block[FRAMES_AT]
    snprintf(c_temporary, PATH_BYTES, "%s/next.tmp", c_folder)
    segment_path(c_path, c_folder, head.first)
    memset(c_block, 0, FRAMES_AT)
    numbers_store(c_block, SEGMENT_MAGIC, head, sizeof(SegmentHead))
    memcpy(c_block + COPY_AT, c_block, HEAD_ROOM)
    return newfile_make(c_temporary, c_path, c_block, FRAMES_AT, syncs)


cdef void segment_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/%020lld.log", c_folder, <long long> first)
