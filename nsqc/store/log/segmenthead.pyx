"""Headers of segments. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_read, io_sync_data, io_write
from nsqc.store.log.newfile cimport newfile_open, newfile_place
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

cdef const char *SEGMENT_MAGIC = b"NSQCLOG\n"

cdef enum:
    MAGIC_BYTES = 8
    NUMBERS_AT = 16
    CRC_AT = HEAD_ROOM - 4


cdef void head_store(char *c_block, const SegmentHead *head) noexcept nogil:
    memset(c_block, 0, FRAMES_AT)
    memcpy(c_block, SEGMENT_MAGIC, MAGIC_BYTES)
    store_i32(c_block + 8, SEGMENT_VERSION)
    store_i64(c_block + NUMBERS_AT, <int64_t> head.log_id)
    store_i64(c_block + 24, head.sequence)
    store_i64(c_block + 32, head.first)
    store_i64(c_block + 40, <int64_t> head.salt)
    store_i64(c_block + 48, head.made_ns)
    store_i64(c_block + 56, <int64_t> head.before_salt)
    store_i64(c_block + 64, head.before_position)
    store_i64(c_block + 72, head.before_end)
    store_i64(c_block + 80, head.before_records)
    store_i64(c_block + 88, head.before_due_ns)
    store_i64(c_block + 96, head.before_time_ns)
    store_i64(c_block + 104, head.durable_from)
    store_i32(c_block + CRC_AT, <int> crc32c(<const unsigned char *> c_block, CRC_AT))
    memcpy(c_block + COPY_AT, c_block, HEAD_ROOM)


cdef HeadCheck head_load(const char *c_block, SegmentHead *head) noexcept nogil:
    cdef const char *c_head = c_block
    if not is_sound(c_head):
        c_head = c_block + COPY_AT
        if not is_sound(c_head):
            return HEAD_DAMAGED
    if load_i32(c_head + 8) != SEGMENT_VERSION or load_i32(c_head + 12):
        return HEAD_UNKNOWN
    head.log_id = <uint64_t> load_i64(c_head + NUMBERS_AT)
    head.sequence = load_i64(c_head + 24)
    head.first = load_i64(c_head + 32)
    head.salt = <uint64_t> load_i64(c_head + 40)
    head.made_ns = load_i64(c_head + 48)
    head.before_salt = <uint64_t> load_i64(c_head + 56)
    head.before_position = load_i64(c_head + 64)
    head.before_end = load_i64(c_head + 72)
    head.before_records = load_i64(c_head + 80)
    head.before_due_ns = load_i64(c_head + 88)
    head.before_time_ns = load_i64(c_head + 96)
    head.durable_from = load_i64(c_head + 104)
    return HEAD_SOUND


cdef bint is_sound(const char *c_head) noexcept nogil:
    return (memcmp(c_head, SEGMENT_MAGIC, MAGIC_BYTES) == 0
            and <uint32_t> load_i32(c_head + CRC_AT) == crc32c(<const unsigned char *> c_head, CRC_AT))


cdef int head_read(int fd, SegmentHead *head) noexcept nogil:
    cdef char c_block[FRAMES_AT]
    cdef int64_t got = io_read(fd, c_block, FRAMES_AT, 0)
    if got < 0:
        return <int> got
    memset(c_block + got, 0, <size_t> (FRAMES_AT - got))
    return head_load(c_block, head)


cdef int segment_make(const char *c_folder, const SegmentHead *head, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_block[FRAMES_AT]
    cdef int64_t written
    cdef int error, fd
    snprintf(c_temporary, PATH_BYTES, "%s/next.tmp", c_folder)
    fd = newfile_open(c_temporary)
    if fd < 0:
        return fd
    head_store(c_block, head)
    error = io_write(fd, c_block, FRAMES_AT, 0, &written)
    if error == 0 and syncs:
        error = io_sync_data(fd)
    if error == 0:
        segment_path(c_path, c_folder, head.first)
        error = newfile_place(c_temporary, c_path)
    if error:
        close(fd)
        unlink(c_temporary)
        return -error
    return fd


cdef void segment_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/%020lld.log", c_folder, <long long> first)
