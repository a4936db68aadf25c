"""Files of a journal. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, qsort, strtoll
from libc.string cimport memset, strcmp, strncmp
from posix.fcntl cimport O_NONBLOCK, O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read, io_size, io_truncate, io_write
from nsqc.store.log.array cimport array_room
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.frame cimport (FRAME_ALIGN, FRAME_FULL, FRAME_SHORT, MORE, Frame, frame_check, frame_length,
                                   frame_store, frames_seal, is_offset)
from nsqc.store.log.journal cimport ChannelState, state_apply, state_free
from nsqc.store.log.offsets cimport NO_ATTEMPTS, Range, RangeWalk, offsets_next
from nsqc.store.log.ops cimport (NAME_ROOM, OP_ADVANCE, OP_BYTES, OP_NAME, OP_REQ, OP_RESET, OP_SKIP, TOPIC_NUMBER, Op,
                                 op_length, op_store)
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open
from nsqc.wire.hton cimport store_i32

cdef extern from *:
    """
    #include <sys/stat.h>
    static int nsqc_is_file(const char *path) {
        struct stat state;
        return stat(path, &state) == 0 && S_ISREG(state.st_mode);
    }
    """
    bint nsqc_is_file(const char *path) nogil

cdef const char *PREFIX = b"cursors."
cdef int64_t MOST_NUMBER = 1_000_000_000_000

cdef enum:
    PREFIX_BYTES = 8
    FIRST_ROOM = 2


# ---------------------------------------------------------------------- names

cdef void journal_path(char *c_path, const char *c_folder, int64_t number) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/%s%06lld", c_folder, PREFIX, <long long> number)


cdef void journal_new_path(char *c_path, const char *c_folder) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/%stmp", c_folder, PREFIX)


cdef int64_t journal_number(const char *c_name) noexcept nogil:
    cdef char[64] written
    cdef int64_t number
    if strncmp(c_name, PREFIX, PREFIX_BYTES) != 0:
        return 0
    number = strtoll(c_name + PREFIX_BYTES, NULL, 10)
    # Format it again to compare: the name may have fewer digits, or more.
    snprintf(written, sizeof(written), "%s%06lld", PREFIX, <long long> number)
    return number if strcmp(c_name, written) == 0 and 0 < number <= MOST_NUMBER else 0


cdef int files_add(FoundFiles *files, int64_t number) noexcept nogil:
    if array_room(<void **> &files.items, &files.room, files.count + 1, sizeof(FoundFile), FIRST_ROOM) < 0:
        return ENOMEM
    files.items[files.count].number = number
    files.items[files.count].damaged = False
    files.count += 1
    return 0


cdef void files_free(FoundFiles *files) noexcept nogil:
    free(files.items)
    memset(files, 0, sizeof(FoundFiles))


cdef int by_number(const void *c_left, const void *c_right) noexcept nogil:
    cdef int64_t left = (<const FoundFile *> c_left).number
    cdef int64_t right = (<const FoundFile *> c_right).number
    return -1 if left < right else left > right


# ---------------------------------------------------------------------- loading

cdef int files_load(FoundFiles *files, JournalState *state, const char *c_folder) noexcept nogil:
    cdef int64_t index, damaged
    cdef int error = 0
    memset(&files.last, 0, sizeof(JournalFile))
    files.torn_bytes = files.state_bytes = 0
    if files.count:
        qsort(files.items, <size_t> files.count, sizeof(FoundFile), by_number)
    for index in range(files.count):
        damaged = state.damaged
        if error == 0:
            error = load_file(files, state, c_folder, files.items[index].number)
        files.items[index].damaged = state.damaged > damaged
    if files.last.number == 0:
        files.last.number = files_free_number(files, 1)
    files.last.fd = -1
    return error


cdef int64_t files_free_number(const FoundFiles *files, int64_t number) noexcept nogil:
    cdef int64_t index
    for index in range(files.count):
        number += files.items[index].number == number
    return number


cdef int load_file(FoundFiles *files, JournalState *state, const char *c_folder, int64_t number) noexcept nogil:
    """0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t limit
    cdef Walk walk
    cdef int error
    cdef int fd
    journal_path(c_path, c_folder, number)
    if not nsqc_is_file(c_path):
        state.damaged += 1
        return 0
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd < 0:
        return -fd
    limit = io_size(fd)
    if limit < 0:
        error = <int> -limit
    else:
        walk_open(&walk, fd, <uint64_t> number, 0, limit, 0, INT64_MAX)
        error = load_frames(files, state, &walk, number)
        if error == 0 and walk.hole >= 0:
            error = judge_end(files, state, &walk)
        walk_free(&walk)
    if files.last.number == number:
        files.last.position = (limit + FRAME_ALIGN - 1) & ~<int64_t> (FRAME_ALIGN - 1)
    close(fd)
    return error


cdef int load_frames(FoundFiles *files, JournalState *state, Walk *walk, int64_t number) noexcept nogil:
    """0 or errno."""
    cdef JournalState fresh         # the state at the beginning of the file
    cdef bint pending = True, whole = True
    cdef const char *c_ops
    cdef int64_t length
    cdef int answer, error = 0
    memset(&fresh, 0, sizeof(fresh))
    while error == 0:
        answer = walk_next(walk)
        if answer <= 0:
            error = -answer
            break
        if not is_offset(walk.frame.id) or not is_offset(walk.frame.time_ns):
            state.damaged += 1
            continue
        c_ops = walk_data(walk) + OPS_AT
        length = walk.frame.payload - RECORD_SIZE
        pending = pending and walk.frame.time_ns > 0
        if pending:
            fresh.at = walk.frame.time_ns
            if walk.frame.id == fresh.at:
                whole = whole and walk.hole < 0
                error = state_apply(&fresh, c_ops, length)
                files.state_bytes = walk.next
                pending = walk.frame.flags & MORE
            else:
                pending = whole = False
            if not pending:
                choose(state, &fresh, whole)
        if walk.frame.id > state.at and not pending:
            state.damaged += walk.frame.id > state.at + 1
            state.at = walk.frame.id
            error = error or state_apply(state, c_ops, length)
        files.last.number, files.last.begins = number, walk.frame.time_ns
    if pending and files.last.number == number:
        choose(state, &fresh, False)
    state_free(&fresh)
    return error


cdef void choose(JournalState *state, JournalState *fresh, bint whole) noexcept nogil:
    """A file's initial state replaces the state from earlier files if that is older or damaged."""
    cdef JournalState other = state[0]
    cdef int64_t damaged = state.damaged + fresh.damaged + (not whole)
    if fresh.at > state.at or (whole and state.damaged):
        state[0] = fresh[0]
        fresh[0] = other
    state.damaged = damaged


cdef int judge_end(FoundFiles *files, JournalState *state, const Walk *walk) noexcept nogil:
    """Whether the bytes after the last frame are normal after a kill or power failure: part of a frame, or zeros. 0 or
    errno."""
    cdef char c_head[FRAME_HEAD]
    cdef int64_t got = io_read(walk.fd, c_head, FRAME_HEAD, walk.hole), at = 0
    cdef Frame frame
    if got < 0:
        return <int> -got
    while at < got and c_head[at] == 0:
        at += 1
    if (got < FRAME_HEAD or at == got or (
            frame_check(c_head, FRAME_HEAD, walk.salt, walk.hole, &frame) == FRAME_SHORT
            and walk.hole + frame.length > walk.limit)):
        files.torn_bytes += walk.limit - walk.hole
    else:
        state.damaged += 1
    return 0


# ---------------------------------------------------------------------- writing

cdef int journal_append(JournalFile *file, char *c_frame, int64_t ops_end, int64_t id, int flags) noexcept nogil:
    cdef int64_t length, written
    cdef Frame frame
    cdef int error
    memset(&frame, 0, sizeof(frame))
    frame.payload = ops_end - FRAME_HEAD
    frame.records = 1
    frame.flags = <unsigned short> flags
    frame.id = id
    frame.time_ns = file.begins
    frame_store(c_frame, &frame)
    store_i32(c_frame + FRAME_HEAD, <int> (ops_end - OPS_AT))
    length = frame_length(frame.payload)
    memset(c_frame + ops_end, 0, <size_t> (length - ops_end))
    frames_seal(c_frame, length, <uint64_t> file.number, file.position, file.position, 0)
    error = io_write(file.fd, c_frame, length, file.position, &written)
    if error:
        io_truncate(file.fd, file.position)
        return error
    file.position += length
    return 0


cdef struct StateWriter:
    JournalFile *file
    Buffer frame                # being filled
    int64_t id
    ChannelState *channel
    int error                   # the first errno; later writes are skipped


cdef void put(StateWriter *writer, int kind, int64_t offset, int64_t value, int attempts) noexcept nogil:
    cdef Op op
    if writer.frame.length >= FRAME_FULL and writer.error == 0:
        writer.error = journal_append(writer.file, writer.frame.c_data, writer.frame.length, writer.id, MORE)
        writer.frame.length = OPS_AT
        if kind != OP_NAME:
            # Each part repeats the name, so a damaged frame does not lose it.
            put(writer, OP_NAME, 0, 0, 0)
    if buffer_room(&writer.frame, OP_BYTES + NAME_ROOM + FRAME_ALIGN) < 0:
        writer.error = writer.error or ENOMEM
        return
    op.kind, op.number, op.attempts = kind, writer.channel.number, <unsigned int> attempts
    op.offset, op.value = offset, value
    op.name_bytes, op.c_name = writer.channel.name_bytes, writer.channel.name
    op_store(writer.frame.c_data + writer.frame.length, &op)
    writer.frame.length += op_length(kind)


cdef void put_skip(StateWriter *writer, int64_t first, int64_t end) noexcept nogil:
    if first < end:
        put(writer, OP_SKIP, first, end, 0)


cdef void put_channel(StateWriter *writer, ChannelState *channel) noexcept nogil:
    """Writes the finished ranges: all else is unfinished, including ranges in frames that get damaged later."""
    cdef RangeWalk walk
    cdef const Range *found
    cdef int64_t done, offset
    writer.channel = channel
    if channel.number != TOPIC_NUMBER:
        put(writer, OP_NAME, 0, 0, 0)
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.out, &walk)
    done = found.first if found is not NULL else channel.cursor
    put(writer, OP_RESET, done, 0, 0)
    while found is not NULL:
        put_skip(writer, done, found.first)
        done = found.end
        found = offsets_next(&channel.out, &walk)
    put_skip(writer, done, channel.cursor)
    put(writer, OP_ADVANCE, channel.cursor, 0, 0)
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.skips, &walk)
    while found is not NULL:
        put_skip(writer, found.first, found.end)
        found = offsets_next(&channel.skips, &walk)
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.out, &walk)
    while found is not NULL:
        if found.attempts != NO_ATTEMPTS:
            for offset in range(found.first, found.end):
                put(writer, OP_REQ, offset, found.due_ns, found.attempts)
        found = offsets_next(&channel.out, &walk)


cdef int journal_write_state(JournalFile *file, const JournalState *state) noexcept nogil:
    cdef StateWriter writer
    cdef ChannelState *channel
    cdef int64_t index
    memset(&writer, 0, sizeof(writer))
    writer.file = file
    writer.id = file.begins
    if buffer_room(&writer.frame, OPS_AT + FRAME_ALIGN) < 0:
        return ENOMEM
    writer.frame.length = OPS_AT
    for index in range(state.count):
        channel = state.channels[index]
        # No client can ask for one without a name.
        if (channel.name_bytes or channel.number == TOPIC_NUMBER) and writer.error == 0:
            put_channel(&writer, channel)
    if writer.error == 0:
        writer.error = journal_append(file, writer.frame.c_data, writer.frame.length, writer.id, 0)
    buffer_free(&writer.frame)
    return writer.error
