"""Sparse indexes. See the .pxd."""

from libc.errno cimport ENODATA, ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from nsqc.store.disk.syscalls cimport io_read, io_size, io_truncate, io_write
from nsqc.store.log.array cimport array_below, array_room
from nsqc.store.log.frame cimport FRAME_HEAD, FRAME_SHORT, FRAME_SOUND, Frame, FrameCheck, frame_check
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

cdef enum:
    FIRST_ROOM = 16
    ENTRY_BYTES = 24
    FOOT_BYTES = 24             # salt, magic, entries, checksum of these and the entries
    MAGIC = 0x6E714958


cdef void index_note(Index *index, const Frame *frame, int64_t position) noexcept nogil:
    """Without memory the index just gets coarser."""
    index.time_ns = max(index.time_ns, frame.time_ns)
    if position < index.next_at or array_room(<void **> &index.items, &index.room, index.count + 1, sizeof(IndexEntry),
                                              FIRST_ROOM) < 0:
        return
    index.items[index.count].first = frame.first
    index.items[index.count].position = position
    index.items[index.count].time_ns = index.time_ns
    index.count += 1
    index.next_at = position + INDEX_STEP


cdef void index_free(Index *index) noexcept nogil:
    free(index.items)
    memset(index, 0, sizeof(Index))


cdef const IndexEntry *index_find(const Index *index, int64_t offset) noexcept nogil:
    cdef int64_t count = array_below(&index.items[0].first, sizeof(IndexEntry), index.count, offset + 1)
    return &index.items[count - 1] if count else NULL


cdef const IndexEntry *index_before(const Index *index, int64_t time_ns) noexcept nogil:
    cdef int64_t count = array_below(&index.items[0].time_ns, sizeof(IndexEntry), index.count, time_ns)
    return &index.items[count - 1] if count else NULL


cdef int index_write(const Index *index, int fd, int64_t position, uint64_t salt) noexcept nogil:
    cdef int64_t length = index.count * ENTRY_BYTES + FOOT_BYTES, at, written
    cdef char *c_data
    cdef char *c_to
    cdef int error = io_truncate(fd, position)      # without the zeros reserved for frames
    if error:
        return error
    c_data = c_to = <char *> malloc(<size_t> length)
    if c_data is NULL:
        return ENOMEM
    for at in range(index.count):
        store_i64(c_to, index.items[at].first)
        store_i64(c_to + 8, index.items[at].position)
        store_i64(c_to + 16, index.items[at].time_ns)
        c_to += ENTRY_BYTES
    store_i64(c_to, <int64_t> salt)
    store_i32(c_to + 8, MAGIC)
    store_i64(c_to + 12, index.count)
    store_i32(c_to + 20, <int> crc32c(<const unsigned char *> c_data, length - 4))
    error = io_write(fd, c_data, length, position, &written)
    free(c_data)
    return error


cdef int index_read(Index *index, int fd, uint64_t salt) noexcept nogil:
    cdef char c_foot[FOOT_BYTES]
    cdef int64_t size = io_size(fd), count, length
    cdef char *c_data
    cdef int error = ENODATA
    memset(index, 0, sizeof(Index))
    if size < FOOT_BYTES:
        return ENODATA if size >= 0 else <int> -size
    if io_read(fd, c_foot, FOOT_BYTES, size - FOOT_BYTES) != FOOT_BYTES:
        return ENODATA
    count = load_i64(c_foot + 12)
    if load_i64(c_foot) != <int64_t> salt or load_i32(c_foot + 8) != MAGIC or not 0 < count <= 1 + size // INDEX_STEP:
        return ENODATA
    length = count * ENTRY_BYTES + FOOT_BYTES
    c_data = <char *> malloc(<size_t> length)
    index.items = <IndexEntry *> malloc(<size_t> count * sizeof(IndexEntry))
    if c_data is NULL or index.items is NULL:
        error = ENOMEM
    elif (length <= size and io_read(fd, c_data, length, size - length) == length
            and <uint32_t> load_i32(c_data + length - 4) == crc32c(<const unsigned char *> c_data, length - 4)):
        load_entries(index, c_data, count)
        error = 0
    free(c_data)
    if error:
        index_free(index)
    return error


cdef void load_entries(Index *index, const char *c_from, int64_t count) noexcept nogil:
    cdef int64_t at
    for at in range(count):
        index.items[at].first = load_i64(c_from + at * ENTRY_BYTES)
        index.items[at].position = load_i64(c_from + at * ENTRY_BYTES + 8)
        index.items[at].time_ns = load_i64(c_from + at * ENTRY_BYTES + 16)
    index.count = index.room = count


cdef bint is_at_frame(int fd, uint64_t salt, const IndexEntry *entry) noexcept nogil:
    """Whether a frame with its offset begins at its position: a walk from any other place would miss records."""
    cdef char c_head[FRAME_HEAD]
    cdef FrameCheck answer
    cdef Frame frame
    if entry.position < FRAMES_AT or io_read(fd, c_head, FRAME_HEAD, entry.position) != FRAME_HEAD:
        return False
    answer = frame_check(c_head, FRAME_HEAD, salt, entry.position, &frame)
    return (answer == FRAME_SHORT or answer == FRAME_SOUND) and frame.first == entry.first


cdef int64_t index_position(int fd, uint64_t salt, int64_t offset, int64_t time_ns) noexcept nogil:
    cdef const IndexEntry *entry
    cdef int64_t position = FRAMES_AT
    cdef Index index
    if index_read(&index, fd, salt) == 0:
        entry = index_find(&index, offset) if offset >= 0 else index_before(&index, time_ns)
        if entry is not NULL and is_at_frame(fd, salt, entry):
            position = entry.position
        index_free(&index)
    return position
