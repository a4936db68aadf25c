"""Segments of a log: files, header, manifest, sparse index, the list of them, publish ids, sealing, appends. See the
.pxd."""

import os
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EEXIST, EIO, EISDIR, ELOOP, ENODATA, ENOENT, ENOMEM, ENXIO, EOVERFLOW, ESPIPE, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset, strrchr
from posix.fcntl cimport O_DIRECTORY, O_NONBLOCK, O_RDONLY, O_RDWR
from posix.stat cimport mkdir
from posix.unistd cimport close, unlink

from nsqc.store.disk.fileio cimport (PATH_BYTES, Job, close_counted, count_open, io_open, io_read, io_size,
                                     io_sync_again, io_sync_data, io_sync_path, io_truncate, io_write, newfile_make,
                                     too_many_open)
from nsqc.store.log.frame cimport (FRAME_HEAD, FRAME_SHORT, FRAME_SOUND, HASH_BYTES, MORE, MOST_OFFSET, Buffer, Frame,
                                   FrameCheck, Walk, array_below, array_room, buffer_free, buffer_room, frame_check,
                                   frame_ids, frame_load, frames_seal, is_offset, walk_data, walk_free, walk_next,
                                   walk_open)
from nsqc.store.log.names import Segment as SegmentTuple, new_id
from nsqc.store.memory cimport STEP_NS, wall_ns
from nsqc.wire.codecs cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64


# ====================================================================== header
# Headers of segments. They, the manifest and summaries of ids are HEAD_ROOM bytes with magic, version, numbers of 8
# bytes each, and checksum.

cdef const char *SEGMENT_MAGIC = b"NSQCLOG\n"

cdef enum:
    MAGIC_BYTES = 8
    FLAGS_AT = 12
    NUMBERS_AT = 16
    CRC_AT = HEAD_ROOM - 4


cdef void put_numbers(char *c_to, const void *numbers, int64_t bytes) noexcept nogil:
    cdef const int64_t *c_numbers = <const int64_t *> numbers
    cdef int64_t index
    for index in range(bytes // 8):
        store_i64(c_to + 8 * index, c_numbers[index])


cdef void get_numbers(const char *c_from, void *numbers, int64_t bytes) noexcept nogil:
    cdef int64_t *c_numbers = <int64_t *> numbers
    cdef int64_t index
    for index in range(bytes // 8):
        c_numbers[index] = load_i64(c_from + 8 * index)


cdef void numbers_store(char *c_to, const char *c_magic, const void *numbers, int bytes,
                        int flags=0) noexcept nogil:
    memset(c_to, 0, HEAD_ROOM)
    memcpy(c_to, c_magic, MAGIC_BYTES)
    store_i32(c_to + MAGIC_BYTES, SEGMENT_VERSION)
    store_i32(c_to + FLAGS_AT, flags)
    put_numbers(c_to + NUMBERS_AT, numbers, bytes)
    store_i32(c_to + CRC_AT, <int> crc32c(<const unsigned char *> c_to, CRC_AT))


cdef HeadCheck numbers_load(const char *c_from, const char *c_magic, void *numbers, int bytes,
                            int known=0) noexcept nogil:
    """known: the flags that it may have."""
    if (memcmp(c_from, c_magic, MAGIC_BYTES)
            or <uint32_t> load_i32(c_from + CRC_AT) != crc32c(<const unsigned char *> c_from, CRC_AT)):
        return HEAD_DAMAGED
    if load_i32(c_from + MAGIC_BYTES) != SEGMENT_VERSION or load_i32(c_from + FLAGS_AT) & ~known:
        return HEAD_UNKNOWN
    get_numbers(c_from + NUMBERS_AT, numbers, bytes)
    return HEAD_SOUND


cdef HeadCheck head_load(const char *c_copy, Segment *segment) noexcept nogil:
    cdef HeadCheck answer = numbers_load(c_copy, SEGMENT_MAGIC, segment, SEGMENT_NUMBERS, REMOTE)
    if answer == HEAD_SOUND and not (
            0 < segment.sequence < MOST_OFFSET and is_offset(segment.first) and is_offset(segment.before_position)
            and 0 <= segment.before_end <= segment.first and segment.before_due_ns >= 0
            and segment.before_time_ns >= 0 and is_offset(segment.durable_from)):
        return HEAD_DAMAGED
    segment.before_records = max(min(segment.before_records, segment.first), <int64_t> 0)    # only counted
    segment.remote = answer == HEAD_SOUND and load_i32(c_copy + FLAGS_AT) & REMOTE
    return answer


cdef int head_read(int fd, Segment *segment) noexcept nogil:
    cdef char c_block[FRAMES_AT]
    cdef int64_t got = io_read(fd, c_block, FRAMES_AT, 0)
    cdef HeadCheck answer
    if got < 0:
        return <int> got
    memset(c_block + got, 0, <size_t> (FRAMES_AT - got))
    answer = head_load(c_block, segment)
    return head_load(c_block + COPY_AT, segment) if answer == HEAD_DAMAGED else answer


cdef void segment_follow(Segment *segment, const Segment *last, int64_t first) noexcept nogil:
    memset(segment, 0, sizeof(Segment))
    segment.log_id = last.log_id
    segment.sequence = last.sequence + 1
    segment.first = segment.end = first
    segment.position = FRAMES_AT
    segment.before_salt = last.salt
    segment.before_position = last.position
    segment.before_end = last.end
    segment.before_records = last.before_records + last.end - last.first
    segment.before_due_ns = last.due_ns
    segment.before_time_ns = segment.time_ns = last.time_ns
    segment.lost = lost_before(segment)


cdef bint segment_ends_at(Segment *segment, const Segment *next_) noexcept nogil:
    if next_.before_salt != segment.salt:
        return False
    segment.position = next_.before_position
    segment.end = next_.before_end
    segment.due_ns = next_.before_due_ns
    segment.time_ns = next_.before_time_ns
    return True


cdef int segment_make(const char *c_folder, const Segment *segment, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_block[FRAMES_AT]
    # The newest one is made while an earlier one becomes remote.
    cdef const char *c_writer = b"remote" if segment.remote else b"next"
    snprintf(c_temporary, PATH_BYTES, "%s/%s.tmp", c_folder, c_writer)
    segment_path(c_path, c_folder, segment.first)
    memset(c_block, 0, FRAMES_AT)
    numbers_store(c_block, SEGMENT_MAGIC, segment, SEGMENT_NUMBERS, REMOTE if segment.remote else 0)
    memcpy(c_block + COPY_AT, c_block, HEAD_ROOM)
    return newfile_make(c_temporary, c_path, c_block, FRAMES_AT, syncs)


cdef void segment_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil:
    frames_path(c_path, c_folder, first, False)


cdef void frames_path(char *c_path, const char *c_folder, int64_t first, bint remote) noexcept nogil:
    cdef const char *c_suffix = b"fetched" if remote else b"log"
    snprintf(c_path, PATH_BYTES, "%s/%020lld.%s", c_folder, <long long> first, c_suffix)


cdef int raise_error(int error, str path) except -1:
    raise OSError(error, os.strerror(error), path)


def make_remote(str folder not None, int64_t first) -> None:
    """Replaces the file of a segment, whose frames are in the bucket, by its header. Raises OSError."""
    cdef char c_path[PATH_BYTES]
    cdef bytes name = os.fsencode(folder)
    cdef const char *c_folder = PyBytes_AS_STRING(name)
    cdef Segment segment
    cdef int fd, answer
    with nogil:
        segment_path(c_path, c_folder, first)
        fd = io_open(c_path, O_RDONLY)
        if fd >= 0:
            memset(&segment, 0, sizeof(segment))
            answer = head_read(fd, &segment)
            close(fd)
            segment.remote = True
            fd = segment_make(c_folder, &segment, True) if answer == HEAD_SOUND else -EIO
        if fd >= 0:
            close(fd)
    if fd < 0:
        raise_error(-fd, folder)


def write_segments(str folder not None, heads: list[bytes], int64_t position, int64_t end, int64_t due_ns,
                   int64_t time_ns, int64_t first, bytes key not None) -> None:
    """Writes the files of segments whose frames are in the bucket, from their headers, the oldest first; then an empty
    segment, which begins at the offset `first`, and the manifest. Syncs nothing. Raises OSError.

    position, end, due_ns, time_ns: of the last one with frames, as in Segment. key: of the hashes of publish ids.
    """
    cdef bytes name = os.fsencode(folder), head
    cdef const char *c_folder = PyBytes_AS_STRING(name)
    cdef Segment segment, fresh
    cdef Manifest manifest
    cdef int error
    memset(&segment, 0, sizeof(segment))
    memset(&manifest, 0, sizeof(manifest))
    for head in heads:
        if len(head) != HEAD_ROOM or head_load(head, &segment) != HEAD_SOUND:
            raise_error(EIO, folder)
        segment.remote = True
        write_one(name, &segment)
    segment.position, segment.end, segment.due_ns, segment.time_ns = position, end, due_ns, time_ns
    segment_follow(&fresh, &segment, first)
    fresh.salt, fresh.made_ns, fresh.durable_from = new_id(), wall_ns(), fresh.sequence
    write_one(name, &fresh)
    manifest.log_id, manifest.newest, manifest.newest_first = fresh.log_id, fresh.sequence, first
    manifest.newest_salt, manifest.reserved, manifest.resume = fresh.salt, first, first
    manifest_end(&manifest, &fresh, FRAMES_AT)
    memcpy(manifest.id_key, <const char *> key, min(len(key), <Py_ssize_t> sizeof(manifest.id_key)))
    with nogil:
        error = manifest_write(c_folder, &manifest, False)
    if error:
        raise_error(error, folder)


cdef int write_one(bytes folder, const Segment *segment) except -1:
    cdef const char *c_folder = PyBytes_AS_STRING(folder)
    cdef int fd
    with nogil:
        fd = segment_make(c_folder, segment, False)
        if fd >= 0:
            close(fd)
    if fd < 0:
        raise_error(-fd, os.fsdecode(folder))
    return 0


# ====================================================================== manifest

cdef const char *MANIFEST_MAGIC = b"NSQCMAN\n"


cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_data[HEAD_ROOM]
    cdef int64_t got
    cdef int fd
    memset(manifest, 0, sizeof(Manifest))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd == -ELOOP or fd == -ENXIO:
        return HEAD_DAMAGED
    if fd < 0:
        return fd
    got = io_read(fd, c_data, HEAD_ROOM, 0)
    close(fd)
    if got == -EISDIR or got == -ESPIPE:
        return HEAD_DAMAGED     # not a file: the next manifest replaces it
    return <int> got if got < 0 else manifest_load(c_data, got, manifest)


cdef HeadCheck manifest_load(const char *c_data, int64_t length, Manifest *manifest) noexcept nogil:
    cdef HeadCheck answer = HEAD_DAMAGED
    if length >= HEAD_ROOM:
        answer = numbers_load(c_data, MANIFEST_MAGIC, manifest, sizeof(Manifest))
    if answer == HEAD_SOUND and not (
            is_offset(manifest.newest) and is_offset(manifest.newest_first) and is_offset(manifest.reserved)
            and is_offset(manifest.resume) and has_end(manifest)):
        answer = HEAD_DAMAGED
    if answer != HEAD_SOUND:
        memset(manifest, 0, sizeof(Manifest))
    return answer


cdef bint has_end(const Manifest *manifest) noexcept nogil:
    """Whether the end of a segment is possible."""
    return (is_offset(manifest.end_position) and is_offset(manifest.end)
            and manifest.end_due_ns >= 0 and manifest.end_time_ns >= 0
            and (manifest.end_size == 0 or FRAMES_AT <= manifest.end_position <= manifest.end_size <= MOST_OFFSET))


cdef int manifest_write(const char *c_folder, const Manifest *manifest, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_data[HEAD_ROOM]
    cdef int fd
    numbers_store(c_data, MANIFEST_MAGIC, manifest, sizeof(Manifest))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    snprintf(c_temporary, PATH_BYTES, "%s/manifest.tmp", c_folder)
    fd = newfile_make(c_temporary, c_path, c_data, HEAD_ROOM, syncs)
    if fd < 0:
        return -fd
    close(fd)
    return 0


cdef bytes manifest_bytes(const Manifest *manifest):
    cdef char c_data[HEAD_ROOM]
    numbers_store(c_data, MANIFEST_MAGIC, manifest, sizeof(Manifest))
    return c_data[:HEAD_ROOM]


def manifest_id(const unsigned char[::1] data not None) -> int | None:
    """The id of a log, from the bytes of its manifest; None if they are damaged."""
    cdef Manifest manifest
    if data.shape[0] == 0 or manifest_load(<const char *> &data[0], data.shape[0], &manifest) != HEAD_SOUND:
        return None
    return manifest.log_id


# ====================================================================== index

cdef enum:
    FIRST_ENTRIES = 16
    FOOT_BYTES = 24             # salt, magic, entries, checksum of these and the entries
    MAGIC = 0x6E714958
    MAGIC_OF_IDS = 0x6E714959   # its frames have publish ids


cdef void index_note(Index *index, const Frame *frame, int64_t position) noexcept nogil:
    """Without memory the index just gets coarser."""
    index.time_ns = max(index.time_ns, frame.time_ns)
    index.has_ids |= frame.ids > 0
    if position < index.next_at or array_room(<void **> &index.items, &index.room, index.count + 1, sizeof(IndexEntry),
                                              FIRST_ENTRIES) < 0:
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
    cdef int64_t entries = index.count * sizeof(IndexEntry), length = entries + FOOT_BYTES, written
    cdef char *c_data
    cdef char *c_foot
    cdef int error = io_truncate(fd, position)      # without the zeros reserved for frames
    if error:
        return error
    c_data = <char *> malloc(<size_t> length)
    if c_data is NULL:
        return ENOMEM
    put_numbers(c_data, index.items, entries)
    c_foot = c_data + entries
    store_i64(c_foot, <int64_t> salt)
    store_i32(c_foot + 8, MAGIC_OF_IDS if index.has_ids else MAGIC)
    store_i64(c_foot + 12, index.count)
    store_i32(c_foot + 20, <int> crc32c(<const unsigned char *> c_data, length - 4))
    error = io_write(fd, c_data, length, position, &written)
    free(c_data)
    return error


cdef int index_read(Index *index, int fd, uint64_t salt) noexcept nogil:
    cdef char c_foot[FOOT_BYTES]
    cdef int64_t size = io_size(fd), count, length
    cdef char *c_data
    cdef int error = ENODATA, magic
    memset(index, 0, sizeof(Index))
    if size < FOOT_BYTES:
        return ENODATA if size >= 0 else <int> -size
    if io_read(fd, c_foot, FOOT_BYTES, size - FOOT_BYTES) != FOOT_BYTES:
        return ENODATA
    count = load_i64(c_foot + 12)
    magic = load_i32(c_foot + 8)
    index.has_ids = magic != MAGIC
    if (load_i64(c_foot) != <int64_t> salt or not 0 < count <= 1 + size // INDEX_STEP
            or magic != MAGIC and magic != MAGIC_OF_IDS):
        return ENODATA
    length = count * sizeof(IndexEntry) + FOOT_BYTES
    c_data = <char *> malloc(<size_t> length)
    index.items = <IndexEntry *> malloc(<size_t> count * sizeof(IndexEntry))
    if c_data is NULL or index.items is NULL:
        error = ENOMEM
    elif (length <= size and io_read(fd, c_data, length, size - length) == length
            and <uint32_t> load_i32(c_data + length - 4) == crc32c(<const unsigned char *> c_data, length - 4)):
        get_numbers(c_data, index.items, length - FOOT_BYTES)
        index.count = index.room = count
        error = 0
    free(c_data)
    if error:
        index_free(index)
    return error


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


def index_frames(int fd, uint64_t salt, extents: list[tuple[int, int, int, int]]) -> int:
    """Checks the frames of a segment that were written to a file, and appends their index. Raises OSError.

    extents: position, bytes, first offset and the one after the last of each, in order. Returns the number of sound
    ones; the index is not written if others follow.
    """
    cdef int64_t position = 0, length = 0, first, end, at, sound = 0
    cdef Index index
    cdef Walk walk
    cdef int answer = 0
    memset(&index, 0, sizeof(index))
    for position, length, first, end in extents:
        at = first
        walk_open(&walk, fd, salt, position, position + length, first, end)
        with nogil:
            answer = walk_next(&walk)
            while answer == 1 and walk.hole < 0 and walk.frame.first == at:
                index_note(&index, &walk.frame, walk.position)
                at += walk.frame.records
                answer = walk_next(&walk)
        walk_free(&walk)
        if answer != 0 or at != end:
            break
        sound += 1
    if sound == len(extents) and sound:
        answer = -index_write(&index, fd, position + length, salt)
    index_free(&index)
    if answer < 0:
        raise_error(-answer, None)
    return sound


# ====================================================================== segments

cdef enum:
    FIRST_SEGMENTS = 4


cdef int segments_reserve(Segments *segments, int64_t count) noexcept nogil:
    return array_room(<void **> &segments.items, &segments.room, segments.count + count, sizeof(Segment),
                      FIRST_SEGMENTS)


cdef void segments_add(Segments *segments, const Segment *segment) noexcept nogil:
    cdef Segment *last = segments_last(segments)
    cdef int64_t lost = segment.lost
    if last is not NULL:
        lost = max(segment.before_records - (last.before_records + last.end - last.first), <int64_t> 0)
        if last.first == segment.first:     # it was empty, and its file was replaced: retention must not remove that
            lost += last.lost
            segments.missing -= last.lost
            segments.count -= 1
    segments.items[segments.count] = segment[0]
    segments.items[segments.count].lost = lost
    segments.missing += lost
    segments.count += 1
    segments.bytes += segment.position - FRAMES_AT


cdef void segments_drop(Segments *segments, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        segments.bytes -= segments.items[index].position - FRAMES_AT
        segments.missing -= segments.items[index].lost
    if count < segments.count:
        segments.missing -= segments.items[count].lost
        segments.items[count].lost = 0
    segments.count -= count
    segments.dropped += count
    memmove(segments.items, segments.items + count, <size_t> segments.count * sizeof(Segment))


cdef int64_t segments_surplus(Segments *segments, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops,
                              int64_t now_ns, int64_t since_ns) noexcept nogil:
    cdef int64_t gone = 0, left = segments.bytes, size, sane = 0, time_ns
    cdef Segment *segment
    cdef bint old, surplus
    while gone < segments.count - 1:
        segment = &segments.items[gone]
        # A clock that was fast says nothing about the age: the segment is at least as old as a later one.
        sane = max(sane, gone)
        while sane < segments.count and segments.items[sane].time_ns - now_ns >= STEP_NS:
            sane += 1
        time_ns = segments.items[sane].time_ns if sane < segments.count else since_ns
        old = now_ns - time_ns > retain_ns
        size = left - (segment.position - FRAMES_AT)
        surplus = size >= retain_bytes
        if segment.end <= needed:
            if not (old and surplus):
                break
        elif not drops or not ((retain_ns > 0 and old) or (retain_bytes > 0 and left > retain_bytes)):
            break
        left = size
        gone += 1
    return gone


cdef void segments_free(Segments *segments) noexcept nogil:
    free(segments.items)
    memset(segments, 0, sizeof(segments[0]))


cdef int64_t segments_find(Segments *segments, int64_t offset) noexcept nogil:
    if segments.count and segments.items[segments.count - 1].first <= offset:
        return segments.count - 1
    return array_below(&segments.items[0].first, sizeof(Segment), segments.count, offset + 1) - 1


cdef int64_t segments_at_time(Segments *segments, int64_t time_ns) noexcept nogil:
    return array_below(&segments.items[0].time_ns, sizeof(Segment), segments.count, time_ns)


cdef int64_t segments_rank(Segments *segments, int64_t offset) noexcept nogil:
    cdef int64_t index = segments_find(segments, offset)
    cdef Segment *segment
    if index < 0:
        return segments.items[0].before_records if segments.count else 0
    segment = &segments.items[index]
    return segment.before_records + min(offset, segment.end) - segment.first


cdef object segment_tuple(const Segment *segment):
    return SegmentTuple(segment.first, segment.end, segment.position, segment.salt, segment.sequence, segment.size,
                        segment.lost, segment.damaged, segment.made_ns, segment.remote)


# ====================================================================== publish ids

cdef const char *SUMMARY_MAGIC = b"NSQCIDS\n"


cdef int ids_collect(const char *c_folder, const Segment *segment, Buffer *ids) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int answer, fd
    cdef Index index
    cdef Walk walk
    cdef bint has_ids = True
    segment_path(c_path, c_folder, segment.first)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd < 0:
        return -fd
    if index_read(&index, fd, segment.salt) == 0:
        has_ids = index.has_ids
        index_free(&index)
    if not has_ids:
        close(fd)
        return 0
    walk_open(&walk, fd, segment.salt, FRAMES_AT, segment.position, segment.first, segment.end)
    answer = walk_next(&walk)
    while answer == 1:
        if walk.frame.ids and put_ids(ids, frame_ids(walk_data(&walk), &walk.frame), &walk.frame) < 0:
            answer = -ENOMEM
            break
        answer = walk_next(&walk)
    walk_free(&walk)
    close(fd)
    return -answer


cdef int put_ids(Buffer *ids, const char *c_id, const Frame *frame) noexcept nogil:
    """-1: no memory."""
    cdef char *c_to
    cdef uint32_t _index
    if buffer_room(ids, <int64_t> frame.ids * ID_ENTRY) < 0:
        return -1
    c_to = ids.c_data + ids.length
    for _index in range(frame.ids):
        memcpy(c_to, c_id, HASH_BYTES)
        store_i64(c_to + HASH_BYTES, frame.time_ns)
        c_to += ID_ENTRY
        c_id += HASH_BYTES
    ids.length = c_to - ids.c_data
    return 0


cdef void summary_path(char *c_path, const char *c_folder, int64_t first) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/ids.%020lld", c_folder, <long long> first)


cdef int summary_write(const char *c_folder, int64_t first, Summary *summary, Buffer *out) noexcept nogil:
    """Writes the ids that follow HEAD_ROOM bytes in `out`. 0 or errno. Durable when it returns, so that the segment may
    be removed then."""
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef int fd
    summary.count = (out.length - HEAD_ROOM) // ID_ENTRY
    summary.check = crc32c(<const unsigned char *> out.c_data + HEAD_ROOM, out.length - HEAD_ROOM)
    numbers_store(out.c_data, SUMMARY_MAGIC, summary, sizeof(Summary))
    summary_path(c_path, c_folder, first)
    # Each has its own: several segments may be sealed at once.
    snprintf(c_temporary, PATH_BYTES, "%s/ids.%020lld.tmp", c_folder, <long long> first)
    fd = newfile_make(c_temporary, c_path, out.c_data, out.length, True)
    if fd < 0:
        return -fd
    close(fd)
    return io_sync_path(c_folder, O_RDONLY | O_DIRECTORY)


cdef int summary_read(const char *c_folder, int64_t first, Summary *summary, Buffer *ids) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_head[HEAD_ROOM]
    cdef int64_t length, got
    cdef int fd, error = 0
    memset(summary, 0, sizeof(Summary))
    summary_path(c_path, c_folder, first)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)     # not to wait for the writer of a pipe
    if fd < 0:
        return -fd
    got = io_read(fd, c_head, HEAD_ROOM, 0)
    if (got != HEAD_ROOM or numbers_load(c_head, SUMMARY_MAGIC, summary, sizeof(Summary)) != HEAD_SOUND
            or not 0 < summary.count <= (io_size(fd) - HEAD_ROOM) // ID_ENTRY):
        error = ENODATA
    elif ids is not NULL:
        length = summary.count * ID_ENTRY
        got = io_read(fd, ids.c_data, length, HEAD_ROOM) if buffer_room(ids, length) == 0 else -ENOMEM
        if got == length and crc32c(<const unsigned char *> ids.c_data, length) == summary.check:
            ids.length = length
        else:
            error = ENODATA
    if got < 0:
        error = <int> -got
    close(fd)
    return error


# ====================================================================== seal

cdef void run_seal(Job *c_job) noexcept nogil:
    cdef SealJob *job = <SealJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef Buffer ids
    cdef int fd
    memset(&ids, 0, sizeof(ids))
    if job.summarises and buffer_room(&ids, HEAD_ROOM) == 0:
        ids.length = HEAD_ROOM
        if (ids_collect(job.c_folder, &job.segment, &ids) or ids.length == HEAD_ROOM
                or summary_write(job.c_folder, job.segment.first, &job.summary, &ids)):
            job.summary.count = 0
    buffer_free(&ids)
    segment_path(c_path, job.c_folder, job.segment.first)
    fd = io_open(c_path, O_RDWR) if job.index.count else -1
    if fd >= 0:
        index_write(&job.index, fd, job.segment.position, job.segment.salt)
        close(fd)


cdef void seal_free(SealJob *job) noexcept nogil:
    index_free(&job.index)
    free(job)


cdef int segment_trim(const char *c_folder, const Segment *segment) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int error, fd
    segment_path(c_path, c_folder, segment.first)
    fd = io_open(c_path, O_RDWR)
    if fd < 0:
        return -fd
    error = io_truncate(fd, segment.position)
    close(fd)
    return error


# ====================================================================== append

cdef extern from *:
    """
    static const char nsqc_zeros[65536];
    """
    const char *nsqc_zeros

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void *to, size_t length, unsigned flags)

cdef enum:
    ZERO_BYTES = 65536
    LEAST_READY = 16384         # bytes of frames below which a segment's file is not extended
    MOST_READY = 1048576        # most bytes to extend it by

cdef int64_t MARGIN = 1 << 39   # reserve more offsets when fewer are left


cdef void run_append(Job *c_job) noexcept nogil:
    cdef AppendJob *job = <AppendJob *> c_job
    cdef int64_t at = 0, length, records, offset = job.offset
    cdef bint fresh = job.fresh
    cdef Segment *segment
    # Only a hostile file brings a log that far.
    job.error = 0 if is_offset(job.offset + job.records) else EOVERFLOW
    if job.error == 0 and job.makes_folder:
        job.error = make_folder(job)
    if job.error == 0:
        job.error = sync_earlier(job)
        job.earlier_failed = job.error != 0
    segment = add_segment(job, &job.last)
    while job.error == 0 and at < job.out.length:
        length = 0 if fresh else span(job, at, segment.position, &records)
        if length == 0:
            segment = begin_segment(job, segment, offset)
            fresh = False
            continue
        job.error = write_span(job, segment, at, length, offset)
        at += length
        offset += records
        segment.end = offset
    if job.error == 0:
        job.error = complete(job)
    if job.error:
        undo(job)
    elif too_many_open():
        append_close(job)


cdef int make_folder(AppendJob *job) noexcept nogil:
    return errno if mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST else 0


cdef Segment *add_segment(AppendJob *job, const Segment *segment) noexcept nogil:
    """NULL, with job.error: no memory."""
    if segments_reserve(&job.written, 1) < 0:
        job.error = ENOMEM
        return NULL
    job.written.items[job.written.count] = segment[0]
    job.written.count += 1
    return segments_last(&job.written)


cdef int64_t span(AppendJob *job, int64_t begin, int64_t position, int64_t *records) noexcept nogil:
    """Bytes of the whole batches that fit into a segment at a position, and their records; 0: it is full."""
    cdef int64_t at = begin, batch = begin, count = 0
    cdef Frame frame
    records[0] = 0
    while at < job.out.length:
        frame_load(job.out.c_data + at, &frame)
        at += frame.length
        count += frame.records
        if frame.flags & MORE and at < job.out.length:
            continue
        if position - FRAMES_AT + at - begin > job.max_file and (batch > begin or position > FRAMES_AT):
            break
        batch = at
        records[0] = count
    return batch - begin


cdef Segment *begin_segment(AppendJob *job, Segment *last, int64_t offset) noexcept nogil:
    """NULL, with job.error."""
    cdef Segment fresh
    append_close(job)
    last.log_id = job.manifest.log_id
    last.sequence = max(last.sequence, job.manifest.newest)
    segment_follow(&fresh, last, offset)
    if not is_offset(fresh.sequence):
        job.error = EOVERFLOW
        return NULL
    fresh.before_records += job.lost
    fresh.lost = lost_before(&fresh)
    job.lost = 0
    fresh.made_ns = job.wall_ns
    fresh.durable_from = job.durable_from if job.durable_from else fresh.sequence
    if getrandom(&fresh.salt, sizeof(fresh.salt), 0) != sizeof(fresh.salt):
        job.error = errno
        return NULL
    job.fd = segment_make(job.c_folder, &fresh, job.syncs)
    if job.fd < 0:
        job.error = -job.fd
        job.fd = -1
        return NULL
    count_open(1)
    job.synced = job.ready = FRAMES_AT
    last = add_segment(job, &fresh)
    if last is NULL:
        remove_segment(job, offset)
    return last


cdef int write_span(AppendJob *job, Segment *segment, int64_t at, int64_t length, int64_t offset) noexcept nogil:
    """0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t written
    cdef int error
    if job.fd < 0:
        segment_path(c_path, job.c_folder, segment.first)
        job.fd = io_open(c_path, O_RDWR)
        if job.fd < 0:
            error = -job.fd
            job.fd = -1
            return error
        count_open(1)
    frames_seal(job.out.c_data + at, length, segment.salt, segment.position, offset, job.synced, &segment.time_ns,
                &segment.due_ns)
    error = io_write(job.fd, job.out.c_data + at, length, segment.position, &written)
    if error == 0 and job.syncs:
        if segment.position + length > job.ready:
            make_ready(job, segment.position + length)
        error = io_sync_data(job.fd)
    if error:
        return error
    segment.position += length
    if job.syncs:
        job.synced = segment.position
    return 0


cdef void make_ready(AppendJob *job, int64_t position) noexcept nogil:
    """Doubles the file, up to a limit: syncs are faster after overwriting durable zeros than after growing the file."""
    cdef int64_t length = min(position - FRAMES_AT, <int64_t> MOST_READY, FRAMES_AT + job.max_file - position), written
    job.ready = position
    if position - FRAMES_AT < LEAST_READY:
        return
    while length > 0 and io_write(job.fd, nsqc_zeros, min(length, <int64_t> ZERO_BYTES), job.ready, &written) == 0:
        job.ready += written
        length -= written


cdef int complete(AppendJob *job) noexcept nogil:
    """Updates the manifest for the new segments and offsets, and for the first write since a stop or a start, and syncs
    names. 0 or errno."""
    cdef const Segment *last = segments_last(&job.written)
    cdef bint begun = job.written.count > 1, reserves = job.offset + job.records > job.manifest.reserved - MARGIN
    cdef int error = 0
    if begun or reserves or job.renews or job.manifest.end_size:
        job.manifest.end_size = 0
        if begun:
            job.manifest.newest = last.sequence
            job.manifest.newest_first = last.first
            job.manifest.newest_salt = last.salt
        if reserves:
            job.manifest.reserved = min(max(job.manifest.reserved, job.offset) + RESERVE, MOST_OFFSET)
        error = manifest_write(job.c_folder, &job.manifest, True)
        job.made_names = True
    if error == 0 and (job.syncs and (job.made_names or job.syncs_names or job.syncs_parent) or reserves):
        error = sync_folders(job)
    return error


cdef int sync_folders(AppendJob *job) noexcept nogil:
    """Syncs the names in the folder, and its own, even those made by others; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef char *c_slash
    cdef int error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    if error == 0 and job.syncs_parent:
        snprintf(c_path, PATH_BYTES, "%s", job.c_folder)
        c_slash = strrchr(c_path, c"/")
        c_slash[0 if c_slash != c_path else 1] = 0
        error = io_sync_path(c_path, O_RDONLY | O_DIRECTORY)
    if error == 0:
        job.made_names = False
        job.synced_names = True
    return error


cdef void remove_segment(AppendJob *job, int64_t first) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    segment_path(c_path, job.c_folder, first)
    unlink(c_path)


cdef void undo(AppendJob *job) noexcept nogil:
    """Removes the written data, as far as the disk allows. The next append begins a segment, whose header says where
    the data before it ends; after a kill until then, the remaining bytes would count."""
    cdef int64_t index
    append_close(job)
    if job.last.sequence and not job.fresh:
        segment_trim(job.c_folder, &job.last)
    for index in range(1, job.written.count):
        remove_segment(job, job.written.items[index].first)
    job.written.count = 0


cdef void append_close(AppendJob *job) noexcept nogil:
    close_counted(&job.fd)


cdef void append_free(AppendJob *job) noexcept nogil:
    buffer_free(&job.out)
    segments_free(&job.written)
    free(job.earlier)
    free(job)


# ---------------------------------------------------------------------- syncs of earlier appends

cdef int sync_earlier(AppendJob *job) noexcept nogil:
    """Syncs earlier data that was written without a sync; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t index
    cdef int error = 0
    for index in range(job.earlier_count):
        segment_path(c_path, job.c_folder, job.earlier[index])
        # After a failed sync, the kernel may consider its data clean.
        error = io_sync_again(c_path, 0) if job.rewrites else io_sync_path(c_path, O_RDONLY)
        if error and error != ENOENT:       # retention removed it
            return error
    return 0
