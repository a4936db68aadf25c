"""One snapshot in place of many journals. See the .pxd."""

import os

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_rename, io_sync, io_sync_path, io_unlink, io_write
from nsqc.store.log.journal cimport CursorState, journal_head, state_free, state_init
from nsqc.store.log.listing cimport (SNAPSHOT, TEMPORARY, CursorFile, Listing, cursor_path, listing_free,
                                     listing_read)
from nsqc.store.log.offsets cimport Range, Waiting, Walk, offsets_next, waiting_from, waiting_next
from nsqc.store.log.ops cimport (END_NUMBER, FRAME_BYTES, JOURNAL_HEAD_BYTES, OP_ADVANCE, OP_END, OP_NAME,
                                 OP_RESET, OP_SKIP, SECTION_BYTES, TOPIC_NUMBER, put_cursor, put_range, put_req,
                                 put_varint)
from nsqc.store.log.replay cimport state_replay
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport store_i32, store_i64

cdef enum:
    FULL_BYTES = 65536          # of a payload, from which on a frame is written
    SPARE_BYTES = 4096          # room behind that: for the head of a section and a few operations

cdef struct Writer:
    int fd
    int64_t at                  # in the file
    int error                   # the first errno; nothing is written after it
    char *c_frame               # owned: FRAME_BYTES, then the payload
    char *c_end                 # behind the payload so far
    char *c_section             # head of the section that is being written; NULL: none
    CursorState *channel        # it is about
    int64_t last                # what offsets are relative to


# ---------------------------------------------------------------------- frames and sections

cdef void write_frame(Writer *writer) noexcept nogil:
    cdef int64_t length = writer.c_end - writer.c_frame - FRAME_BYTES, written
    if writer.error or length == 0:
        return
    store_i32(writer.c_frame, <int> length)
    store_i32(writer.c_frame + 4, <int> crc32c(<const unsigned char *> writer.c_frame + FRAME_BYTES, length))
    writer.error = io_write(writer.fd, writer.c_frame, FRAME_BYTES + length, writer.at, &written)
    writer.at += FRAME_BYTES + length
    writer.c_end = writer.c_frame + FRAME_BYTES


cdef void begin_section(Writer *writer, int number) noexcept nogil:
    writer.c_section = writer.c_end
    store_i32(writer.c_section, number)
    store_i64(writer.c_section + 8, 0)
    writer.c_end += SECTION_BYTES
    writer.last = 0


cdef void end_section(Writer *writer) noexcept nogil:
    store_i32(writer.c_section + 4, <int> (writer.c_end - writer.c_section - SECTION_BYTES))
    if writer.c_end - writer.c_frame - FRAME_BYTES >= FULL_BYTES:
        write_frame(writer)


cdef void begin_channel(Writer *writer, CursorState *channel) noexcept nogil:
    # The name comes with each section, so a frame that is damaged does not take it away.
    writer.channel = channel
    begin_section(writer, <int> channel.number)
    writer.c_end[0] = OP_NAME
    writer.c_end = put_varint(writer.c_end + 1, channel.name_bytes)
    memcpy(writer.c_end, channel.name, channel.name_bytes)
    writer.c_end += channel.name_bytes


cdef inline void split_section(Writer *writer) noexcept nogil:
    """Goes on in another frame if this one is full."""
    if writer.c_end - writer.c_frame - FRAME_BYTES >= FULL_BYTES:
        end_section(writer)
        begin_channel(writer, writer.channel)


# ---------------------------------------------------------------------- a state

cdef struct Unfinished:
    # Goes through what is out or waits, in ascending order.
    CursorState *channel
    Walk out_walk
    Walk waiting_walk
    Range *out                  # the next of each; NULL: none
    Waiting *waiting


cdef void unfinished_begin(Unfinished *walk, CursorState *channel) noexcept nogil:
    memset(walk, 0, sizeof(Unfinished))
    walk.channel = channel
    walk.out = offsets_next(&channel.out, &walk.out_walk)
    walk.waiting = waiting_next(&channel.waiting, &walk.waiting_walk)


cdef Range unfinished_next(Unfinished *walk) noexcept nogil:
    """The next range below the cursor; behind the last one an empty one at the cursor."""
    cdef Range found
    if walk.waiting is not NULL and (walk.out is NULL or walk.waiting.offset < walk.out.first):
        found.first = walk.waiting.offset
        found.end = found.first + 1
        walk.waiting = waiting_next(&walk.channel.waiting, &walk.waiting_walk)
    elif walk.out is not NULL:
        found = walk.out[0]
        walk.out = offsets_next(&walk.channel.out, &walk.out_walk)
    else:
        found.first = INT64_MAX
    if found.first >= walk.channel.cursor:
        found.first = found.end = walk.channel.cursor
    return found


cdef inline void put_skip(Writer *writer, int64_t first, int64_t end) noexcept nogil:
    if first < end:
        writer.c_end = put_range(writer.c_end, OP_SKIP, first, end - first, &writer.last)
        split_section(writer)


cdef void write_ahead(Writer *writer, CursorState *channel) noexcept nogil:
    """What is finished ahead of the cursor. What waits there is skipped, too, and its OP_REQ says so."""
    cdef Walk walk, inside
    cdef Range *skip
    cdef Waiting *entry
    cdef int64_t first
    memset(&walk, 0, sizeof(walk))
    skip = offsets_next(&channel.skips, &walk)
    while skip is not NULL:
        first = skip.first
        inside = waiting_from(&channel.waiting, first)
        entry = waiting_next(&channel.waiting, &inside)
        while entry is not NULL and entry.offset < skip.end:
            put_skip(writer, first, entry.offset)
            first = entry.offset + 1
            entry = waiting_next(&channel.waiting, &inside)
        put_skip(writer, first, skip.end)
        skip = offsets_next(&channel.skips, &walk)


cdef void write_channel(Writer *writer, CursorState *channel) noexcept nogil:
    """Says what is finished: all else is unfinished, also what was in a frame that is damaged later."""
    cdef Unfinished walk
    cdef Range found
    cdef Walk waiting
    cdef Waiting *entry
    cdef int64_t end
    unfinished_begin(&walk, channel)
    found = unfinished_next(&walk)
    begin_channel(writer, channel)
    writer.c_end = put_cursor(writer.c_end, OP_RESET, found.first, &writer.last)
    while found.first < channel.cursor:
        end = found.end
        found = unfinished_next(&walk)
        put_skip(writer, end, found.first)
    writer.c_end = put_cursor(writer.c_end, OP_ADVANCE, channel.cursor, &writer.last)
    write_ahead(writer, channel)
    memset(&waiting, 0, sizeof(waiting))
    entry = waiting_next(&channel.waiting, &waiting)
    while entry is not NULL:
        writer.c_end = put_req(writer.c_end, entry.offset, entry.attempts, entry.due_ns, &writer.last)
        split_section(writer)
        entry = waiting_next(&channel.waiting, &waiting)
    end_section(writer)


cdef int by_number(const void *c_left, const void *c_right) noexcept nogil:
    cdef uint32_t left = (<CursorState **> c_left)[0].number
    cdef uint32_t right = (<CursorState **> c_right)[0].number
    return -1 if left < right else left > right


cdef void write_state(Writer *writer, LogState *state, int64_t number) noexcept nogil:
    cdef int64_t index, written
    journal_head(writer.c_frame, <uint32_t> number)
    writer.error = io_write(writer.fd, writer.c_frame, JOURNAL_HEAD_BYTES, 0, &written)
    writer.at = JOURNAL_HEAD_BYTES
    writer.c_end = writer.c_frame + FRAME_BYTES
    if state.topic_known:
        begin_section(writer, TOPIC_NUMBER)
        writer.c_end = put_cursor(writer.c_end, OP_RESET, state.topic_cursor, &writer.last)
        end_section(writer)
    if state.count:
        qsort(state.channels, state.count, sizeof(CursorState *), by_number)
    for index in range(state.count):
        state.channels[index].at = index
        # Nobody can ask for one without a name.
        if state.channels[index].name_bytes and not writer.error:
            write_channel(writer, state.channels[index])
    write_frame(writer)
    begin_section(writer, END_NUMBER)
    writer.c_end[0] = OP_END
    writer.c_end += 1
    end_section(writer)
    write_frame(writer)


cdef int snapshot_write(LogState *state, const char *c_folder, int64_t number, int64_t *bytes) noexcept nogil:
    cdef char[PATH_BYTES] c_path
    cdef char[PATH_BYTES] c_temporary
    cdef CursorFile file
    cdef Writer writer
    memset(&file, 0, sizeof(file))
    file.number = number
    file.kind = SNAPSHOT
    cursor_path(c_path, c_folder, &file)
    file.kind = TEMPORARY
    cursor_path(c_temporary, c_folder, &file)
    memset(&writer, 0, sizeof(writer))
    writer.c_frame = <char *> malloc(FRAME_BYTES + FULL_BYTES + SPARE_BYTES)
    if writer.c_frame is NULL:
        return ENOMEM
    writer.fd = io_open(c_temporary, O_WRONLY | O_CREAT | O_TRUNC)
    if writer.fd < 0:
        free(writer.c_frame)
        return -writer.fd
    write_state(&writer, state, number)
    free(writer.c_frame)
    if not writer.error:
        writer.error = io_sync(writer.fd)
    close(writer.fd)
    if not writer.error:
        writer.error = io_rename(c_temporary, c_path)
    if writer.error:
        io_unlink(c_temporary)
        return writer.error
    writer.error = io_sync_path(c_folder, O_RDONLY | O_DIRECTORY)
    if writer.error:
        io_unlink(c_path)
    bytes[0] = writer.at
    return writer.error


# ---------------------------------------------------------------------- compaction

cdef void put_away(const char *c_folder, CursorFile *file) noexcept nogil:
    """Removes a file; one that is damaged is kept as NAME.bad."""
    cdef char[PATH_BYTES] c_path
    cdef char[PATH_BYTES + 4] c_bad
    cursor_path(c_path, c_folder, file)
    if file.damaged:
        snprintf(c_bad, sizeof(c_bad), "%s.bad", c_path)
        io_rename(c_path, c_bad)
    else:
        io_unlink(c_path)


cdef int compact(const char *c_folder, int64_t upto, int64_t *bytes) noexcept nogil:
    cdef Listing listing
    cdef LogState state
    cdef CursorFile *file
    cdef int64_t index
    cdef int error
    state_init(&state)
    bytes[0] = 0
    error = listing_read(&listing, c_folder)
    if not error:
        error = state_replay(&state, c_folder, &listing, upto)
    if not error:
        error = snapshot_write(&state, c_folder, upto, bytes)
    if not error:
        for index in range(listing.count):
            file = &listing.files[index]
            if file.number < upto or file.kind == TEMPORARY:
                put_away(c_folder, file)
    state_free(&state)
    listing_free(&listing)
    return error


cdef void run_compact(Job *c_job) noexcept nogil:
    cdef CompactJob *job = <CompactJob *> c_job
    job.error = compact(job.c_folder, job.upto, &job.bytes)


def compact_folder(str folder not None, upto: int) -> int:
    """Compacts up to a journal; returns the bytes of the snapshot. Raises OSError."""
    cdef bytes name = os.fsencode(folder)
    cdef const char *c_folder = name
    cdef int64_t end = upto, written
    cdef int error
    with nogil:
        error = compact(c_folder, end, &written)
    if error:
        raise OSError(error, os.strerror(error), folder)
    return written
