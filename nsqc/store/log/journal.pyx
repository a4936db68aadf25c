"""The journal of cursors: its files, the jobs on them, and the recorder that writes it. See the .pxd."""

cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EEXIST, ENOMEM, errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, qsort, strtoll
from libc.string cimport memcpy, memset, strcmp, strncmp
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_NONBLOCK, O_RDONLY, O_RDWR, O_TRUNC
from posix.stat cimport mkdir
from posix.unistd cimport close

from nsqc.store.disk.fileio cimport (PATH_BYTES, SHORT_BYTES, Job, close_counted, count_open, io_open, io_read,
                                     io_rename, io_size, io_sync_data, io_sync_path, io_truncate, io_unlink, io_write,
                                     io_write_ready, too_many_open)
from nsqc.store.log.frame cimport (FRAME_ALIGN, FRAME_FULL, FRAME_SHORT, MORE, Frame, Walk, array_room, buffer_free,
                                   buffer_room, frame_check, frame_length, frame_store, frames_seal, is_offset,
                                   walk_data, walk_free, walk_next, walk_open)
from nsqc.store.log.names import REMOVED, Extent
from nsqc.store.log.positions cimport (NAME_ROOM, NO_ATTEMPTS, OP_ADVANCE, OP_BYTES, OP_END_AT, OP_FIN, OP_NAME, OP_REQ,
                                       OP_RESET, OP_SKIP, TOPIC_NUMBER, ChannelState, Op, Range, RangeWalk,
                                       offsets_next, op_length, op_store, state_apply, state_free)
from nsqc.wire.hton cimport store_i32, store_i64


# ====================================================================== journal files

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
cdef int64_t MOST_FILE_NUMBER = 1_000_000_000_000

cdef enum:
    PREFIX_BYTES = 8
    FIRST_FILES = 2


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
    return number if strcmp(c_name, written) == 0 and 0 < number <= MOST_FILE_NUMBER else 0


cdef int files_add(FoundFiles *files, int64_t number) noexcept nogil:
    if array_room(<void **> &files.items, &files.room, files.count + 1, sizeof(FoundFile), FIRST_FILES) < 0:
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
        if files.last.number == number:
            files.last.position = (walk.limit + FRAME_ALIGN - 1) & ~<int64_t> (FRAME_ALIGN - 1)
        walk_free(&walk)
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


cdef int judge_end(FoundFiles *files, JournalState *state, Walk *walk) noexcept nogil:
    """Checks whether the bytes after the last frame are what a kill or a power failure leaves: zeros, or half a frame.
    The next frame overwrites them: the length in a head left in place would hide the frames after it. 0 or errno."""
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
        walk.limit = walk.hole
    else:
        state.damaged += 1
    return 0


# ---------------------------------------------------------------------- writing

cdef int journal_append(JournalFile *file, char *c_frame, int64_t ops_end, int64_t id, int flags) noexcept nogil:
    """Appends a frame of operations, which begin at OPS_AT; FRAME_ALIGN bytes of room follow them. A flag: MORE. 0, or
    errno and nothing was appended."""
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
    frames_seal(c_frame, length, <uint64_t> file.number, file.position, file.position, 0, &frame.time_ns,
                &frame.synced)      # both unused from here on
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


cdef void put_op(StateWriter *writer, int kind, int64_t offset, int64_t value, int attempts) noexcept nogil:
    cdef Op op
    if writer.frame.length >= FRAME_FULL and writer.error == 0:
        writer.error = journal_append(writer.file, writer.frame.c_data, writer.frame.length, writer.id, MORE)
        writer.frame.length = OPS_AT
        if kind != OP_NAME:
            # Each part repeats the name, so a damaged frame does not lose it.
            put_op(writer, OP_NAME, 0, 0, 0)
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
        put_op(writer, OP_SKIP, first, end, 0)


cdef void put_channel(StateWriter *writer, ChannelState *channel) noexcept nogil:
    """Writes the finished ranges: all else is unfinished, including ranges in frames that get damaged later."""
    cdef RangeWalk walk
    cdef const Range *found
    cdef int64_t done, offset
    writer.channel = channel
    if channel.number != TOPIC_NUMBER:
        put_op(writer, OP_NAME, 0, 0, 0)
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(&channel.out, &walk)
    done = found.first if found is not NULL else channel.cursor
    put_op(writer, OP_RESET, done, 0, 0)
    while found is not NULL:
        put_skip(writer, done, found.first)
        done = found.end
        found = offsets_next(&channel.out, &walk)
    put_skip(writer, done, channel.cursor)
    put_op(writer, OP_ADVANCE, channel.cursor, 0, 0)
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
                put_op(writer, OP_REQ, offset, found.due_ns, found.attempts)
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


# ---------------------------------------------------------------------- folding

def fold(parts: list[tuple[int, int, bytes]], int64_t number=1) -> tuple[int, bytes]:
    """(number of the last frame, the bytes of a file of this number that has the state) of a journal. parts: bytes of
    its files, each with the number of the file and the position there, oldest first. Raises OSError."""
    cdef JournalState state
    cdef FoundFiles files
    cdef JournalFile file           # in memory: each part at its position, for the walk over it, then the state
    cdef int64_t position, written
    cdef uint64_t salt
    cdef bytes data
    cdef Walk walk
    cdef int error = 0
    memset(&state, 0, sizeof(state))
    memset(&files, 0, sizeof(files))
    memset(&file, 0, sizeof(file))
    file.fd = os.memfd_create("journal")
    try:
        for salt, position, data in parts:
            error = error or io_write(file.fd, PyBytes_AS_STRING(data), len(data), position, &written)
            if error == 0:
                walk_open(&walk, file.fd, salt, position, position + len(data), 0, INT64_MAX)
                error = load_frames(&files, &state, &walk, <int64_t> salt)
                walk_free(&walk)
        file.number, file.begins = number, state.at
        error = error or journal_write_state(&file, &state)
        if error:
            raise OSError(error, os.strerror(error))
        return state.at, os.pread(file.fd, file.position, 0)
    finally:
        state_free(&state)
        close(file.fd)


# ====================================================================== journal jobs

# ---------------------------------------------------------------------- appending

cdef void run_journal(Job *c_job) noexcept nogil:
    cdef JournalJob *job = <JournalJob *> c_job
    cdef JournalFile before
    cdef char c_path[PATH_BYTES]
    job.error = 0
    if job.makes_folder and mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST:
        job.error = errno
        return
    if job.file.fd < 0:
        journal_path(c_path, job.c_folder, job.file.number)
        job.error = open_file(&job.file, c_path, 0)
        count_open(job.error == 0)
        if job.error == 0:
            job.error = io_truncate(job.file.fd, job.file.position)
    before = job.file
    for _ in range(job.copies):
        if job.error == 0:
            job.error = journal_append(&job.file, job.out.c_data, job.out.length, job.id, 0)
    if job.error:
        if job.file.position > before.position:
            io_truncate(job.file.fd, before.position)
        job.file = before
    elif too_many_open():
        close_counted(&job.file.fd)


cdef int open_file(JournalFile *file, const char *c_path, int flags) noexcept nogil:
    """0 or errno."""
    cdef int opened = io_open(c_path, O_RDWR | O_CREAT | flags)
    file.fd = max(opened, -1)
    return -min(opened, 0)


# ---------------------------------------------------------------------- compaction

cdef void run_compact(Job *c_job) noexcept nogil:
    cdef Compaction *job = <Compaction *> c_job
    compact_write(job)
    if job.error == 0:
        compact_place(job)
    if job.error == 0:
        compact_clean(job)


cdef void compact_write(Compaction *job) noexcept nogil:
    cdef char c_new[PATH_BYTES]
    cdef JournalState state
    memset(&state, 0, sizeof(state))
    job.error = files_load(&job.files, &state, job.c_folder)
    if job.error == 0:
        job.file.begins = state.at
        journal_new_path(c_new, job.c_folder)
        job.error = open_file(&job.file, c_new, O_TRUNC)
        if job.error == 0:
            job.error = journal_write_state(&job.file, &state) or io_sync_data(job.file.fd)
            close(job.file.fd)
        if job.error:
            io_unlink(c_new)
    state_free(&state)


cdef void compact_place(Compaction *job) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_new[PATH_BYTES]
    journal_new_path(c_new, job.c_folder)
    journal_path(c_path, job.c_folder, job.file.number)
    job.error = io_rename(c_new, c_path)
    job.placed = job.error == 0
    if job.placed:
        job.error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    else:
        io_unlink(c_new)


cdef void compact_clean(Compaction *job) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_bad[PATH_BYTES + 4]
    cdef int64_t index
    # The newest first: after a kill in between, none of those that remain follows a gap.
    for index in range(job.files.count - 1, -1, -1):
        if job.error == 0:
            journal_path(c_path, job.c_folder, job.files.items[index].number)
            if job.files.items[index].damaged:
                snprintf(c_bad, sizeof(c_bad), "%s.bad", c_path)
                job.error = io_rename(c_path, c_bad)
            else:
                job.error = io_unlink(c_path)


cdef void compaction_free(Compaction *job) noexcept nogil:
    files_free(&job.files)
    free(job)


# ====================================================================== recorder

cdef enum:
    LEAST_COMPACTED = 8388608   # bytes of a journal; smaller ones are not worth compacting
    KEPT_OPS = 65536            # buffer size that a quiet log keeps for operations

cdef double RETRY_S = 0.25


cdef class Journaled(LoopWork):
    """Records the progress of a channel as operations of the journal."""

    def __cinit__(self):
        self.fin_frame = -1

    cdef void mark_dirty(self) noexcept:
        if not self.queued and self.number >= 0 and not self.recorder.forgotten:
            self.queued = True
            self.recorder.dirty.append(self)
            self.recorder.schedule.add(self.recorder)

    cdef bint add(self, int kind, int64_t offset, int64_t value, uint32_t attempts) noexcept:
        cdef Op op
        op.kind, op.offset, op.value, op.attempts, op.name_bytes = kind, offset, value, attempts, 0
        return put(self, &op)

    cdef void add_fin(self, int64_t first, int64_t end) noexcept:
        if self.fin_frame == self.recorder.frame and first == self.fin_end:
            store_i64(self.recorder.ops.c_data + self.fin_at + OP_END_AT, end)
        elif self.add(OP_FIN, first, end, 0):
            self.fin_frame = self.recorder.frame
            self.fin_at = self.recorder.ops.length - op_length(OP_FIN)
        self.fin_end = end

    cdef void add_name(self, bytes name) noexcept:
        cdef Op op
        op.kind, op.offset, op.value, op.attempts = OP_NAME, 0, 0, 0
        op.name_bytes, op.c_name = <int> len(name), PyBytes_AS_STRING(name)
        put(self, &op)


cdef inline bint put(Journaled source, Op *op) noexcept:
    cdef char *c_to = source.recorder.room(op_length(op.kind)) if source.number >= 0 else NULL
    if c_to is NULL:
        return False
    op.number = <uint32_t> source.number
    op_store(c_to, op)
    source.recorder.twice |= op.kind == OP_RESET or op.kind == OP_NAME
    source.fin_frame = -1
    return True


@cython.final
@cython.no_gc_clear
cdef class Recorder(LoopWork):
    """The journal of one log."""

    def __init__(self, str folder not None, IoPool io not None, CommitSchedule schedule not None, syncer, log, synced,
                 bint exists, earlier):
        """earlier: Earlier.journal; None: no earlier run."""
        self.folder = folder
        self.c_folder = os.fsencode(folder)
        self.io = io
        self.schedule = schedule
        self.syncer = syncer
        self.log = log
        self.synced = synced
        self.exists = exists
        self.names = 1
        self.lags = True
        self.file.fd = -1
        if earlier is None:
            self.numbers = []
            self.file.number = self.id = self.next_number = 1
            self.removed_number = -1
        else:
            (self.numbers, self.file.number, self.file.begins, self.file.position, self.id, self.base, self.next_number,
             self.removed_number, self.renews) = earlier
        self.dirty = []
        self.waiting = []
        self.under_way = []

    def __dealloc__(self):
        self.close_file()
        buffer_free(&self.ops)
        buffer_free(&self.spare)
        if self.compaction is not NULL:
            compaction_free(self.compaction)

    # ------------------------------------------------------------------ the file

    cdef void close_file(self) noexcept:
        if not self.running:
            close_counted(&self.file.fd)

    @property
    def paths(self) -> list[str]:
        """All files in use."""
        return [f"{self.folder}/cursors.{number:06d}" for number in self.numbers]

    @property
    def last(self) -> int:
        """Number of the last frame that is written."""
        return self.id - 1

    def since(self, int64_t number, int64_t position) -> tuple[bool, list[Extent]]:
        """(whether these are all files, because that one was compacted away; the frames written after a position of a
        file, as nsqc.store.log.names.Extent of files, oldest first)."""
        cdef bint known = number == self.file.number or number in self.numbers
        cdef list found = []
        for other in self.numbers:
            if known and other < number:
                continue
            begin = position if other == number else 0
            length = self.file.position - begin if other == self.file.number else -1
            if length:
                found.append(Extent(f"{self.folder}/cursors.{other:06d}", other, begin, length, 0, 0))
        return not known, found

    @property
    def compacting(self) -> bool:
        """Whether a thread is writing the new file."""
        return self.compaction is not NULL

    # ------------------------------------------------------------------ writing

    cdef char *room(self, int64_t bytes) noexcept:
        cdef char *c_at
        if self.forgotten:
            return NULL
        if self.ops.c_data is NULL:
            self.ops = self.spare
            memset(&self.spare, 0, sizeof(Buffer))
        if buffer_room(&self.ops, bytes + OPS_AT + FRAME_ALIGN) < 0:
            return NULL
        if self.ops.length == 0:
            self.ops.length = OPS_AT
            self.schedule.add(self)
        c_at = self.ops.c_data + self.ops.length
        self.ops.length += bytes
        return c_at

    cdef int note_removed(self, int64_t first) except -1:
        cdef Journaled source = Journaled.__new__(Journaled)
        source.recorder = self
        if self.removed_number < 0:
            self.removed_number = self.next_number
            self.next_number += 1
            source.number = self.removed_number
            source.add_name(REMOVED)
        source.number = self.removed_number
        source.add(OP_RESET, first, 0, 0)
        return 0

    cdef bint run(self) noexcept:
        cdef Journaled source
        cdef list dirty = self.dirty
        if self.running or self.forgotten:
            return False    # job_done() begins the next one
        self.dirty = []
        for source in dirty:
            source.queued = False
            source.run()
        if self.ops.length:
            self._submit()
        return False

    cdef void _submit(self) noexcept:
        self.lags = True
        self.under_way, self.waiting = self.under_way + self.waiting, []
        memset(&self.job, 0, sizeof(self.job))
        self.job.job.run = run_journal
        self.job.job.bytes = self.ops.length
        # A kill must lose no more than the current loop iteration.
        self.job.job.is_short = (
            self.ops.length <= SHORT_BYTES
            and (self.file.fd < 0 or io_write_ready(self.file.fd, self.file.position)))
        self.job.c_folder = PyBytes_AS_STRING(self.c_folder)
        self.job.makes_folder = not self.exists
        self.job.file = self.file
        self.job.out = self.ops
        self.job.copies = 1 + self.twice
        self.job.id = self.id
        memset(&self.ops, 0, sizeof(Buffer))
        self.twice = False
        self.frame += 1
        self.running = True
        self.io.submit(&self.job.job, self)

    cdef void job_done(self, Job *job) noexcept:
        if job.run != run_journal:
            self._compacted()
            return
        self.running = False
        self.lags = True        # a sync that began meanwhile may not have seen it
        self.file = self.job.file
        if self.job.error:
            self._failed()
            return
        self.exists = True
        if self.file.number not in self.numbers:
            self.numbers.append(self.file.number)
            self.names += 1
        self.id += 1
        if self.spare.c_data is NULL and self.job.out.room <= KEPT_OPS:
            self.spare = self.job.out
            self.spare.length = 0
        else:
            buffer_free(&self.job.out)
        if self.closed:
            self.close_file()
            self._call_all()
        else:
            self._wrote()

    cdef void _failed(self) noexcept:
        """Keeps the frame, with the operations added meanwhile; retries it soon."""
        cdef Buffer both = self.job.out
        if self.job.error != self.error:
            self.log.error("LOG(%s): failed to write the journal - %s", self.folder, os.strerror(self.job.error))
        self.error = self.job.error
        if not self.forgotten:
            self.syncer.failing[self.folder] = (
                f"failed to write the journal of {self.folder} - {os.strerror(self.error)}")
        self.close_file()
        if self.ops.length and buffer_room(&both, self.ops.length + FRAME_ALIGN) == 0:
            memcpy(both.c_data + both.length, self.ops.c_data + OPS_AT, <size_t> (self.ops.length - OPS_AT))
            both.length += self.ops.length - OPS_AT
        buffer_free(&self.ops)
        self.ops = both
        self.twice |= self.job.copies > 1
        self.frame += 1
        self._call_waiting()
        if self.closed:
            self._call_all()
        elif self.schedule.loop is not None:
            self.schedule.loop.call_later(RETRY_S, self.retry)

    cdef void _wrote(self) noexcept:
        cdef bint again = self.error or self.job.job.bytes >= MOST_KEPT
        self.active = True
        if self.error:
            self.error = 0
            self.syncer.failing.pop(self.folder, None)
            self.log.info("LOG(%s): the journal can be written again", self.folder)
        if again:
            self.synced.recorded_again()
        self.wrote()
        if self.changed is not None:
            self.changed(self.job.job.bytes)
        self._call_waiting()
        if self.dirty or self.ops.length:
            self.schedule.add(self)
        elif self.compaction is NULL and not self.closed and (
                self.renews or self.file.position > max(<int64_t> LEAST_COMPACTED, self.base)):
            self._compact()

    cdef void wrote(self) noexcept:
        if not self.told and not self.closed:
            self.told = True
            self.syncer.began(self.synced)

    cdef void names_synced(self, int64_t names) noexcept:
        self.synced_names = max(self.synced_names, names)
        self.rooted = True

    # ------------------------------------------------------------------ compaction

    cdef void _compact(self) noexcept:
        """Has a thread replace the files by one with their state. Later frames go to the file after that."""
        cdef Compaction *job = <Compaction *> calloc(1, sizeof(Compaction))
        cdef int error = job is NULL
        self.renews = False
        for number in self.numbers:
            error = error or files_add(&job.files, number)
        if error:
            if job is not NULL:
                compaction_free(job)
            return
        job.job.run = run_compact
        job.c_folder = PyBytes_AS_STRING(self.c_folder)
        job.file.number = files_free_number(&job.files, self.file.number + 1)
        self.close_file()
        memset(&self.file, 0, sizeof(self.file))
        self.file.fd = -1
        self.file.number = files_free_number(&job.files, job.file.number + 1)
        self.replaced = list(self.numbers)
        self.compaction = job
        self.io.submit(&job.job, self)

    cdef void _compacted(self) noexcept:
        cdef Compaction *job = self.compaction
        self.compaction = NULL
        if job.placed:
            self.numbers = [job.file.number, *self.numbers]
            self.names += 1
            self.base = job.file.position
        if job.error:
            self.log.error("LOG(%s): failed to compact the journal - %s", self.folder, os.strerror(job.error))
        else:
            self.numbers = [number for number in self.numbers if number not in self.replaced]
        compaction_free(job)

    # ------------------------------------------------------------------ waiting

    cdef void _call_waiting(self) noexcept:
        cdef list ended
        if self.under_way:
            ended, self.under_way = self.under_way, []
            for call in ended:
                call()

    cdef void _call_all(self) noexcept:
        """No more writes: calls all waiting callables."""
        self.under_way, self.waiting = self.under_way + self.waiting, []
        self._call_waiting()

    def retry(self):
        """Retries a frame that could not be written."""
        if not self.closed:
            self.schedule.add(self)

    def when_written(self, call: Callable[[], object]):
        """Calls call() when all operations recorded so far are in the journal, or could not be written."""
        cdef bint waits = self.dirty or self.ops.length
        if self.running and (self.closed or not waits):
            self.under_way.append(call)
        elif not self.closed and waits:
            self.waiting.append(call)
        else:
            call()

    @property
    def refused(self) -> int:
        """Why recorded operations are not in the journal: an errno. 0: they are, or the log is deleted."""
        return 0 if self.forgotten else self.error

    # ------------------------------------------------------------------ the end

    cdef void forget(self) noexcept:
        """The log is deleted: drops unwritten operations."""
        self.closed = self.forgotten = True
        self.dirty = []         # a reference cycle: neither would ever be freed
        self.synced = self.changed = None
        self.syncer.failing.pop(self.folder, None)
        if not self.running:
            self._call_all()

    def close(self):
        """For a stop: writes the remaining operations, if the disk accepts them."""
        self.closed = True
        self.synced = None
        self.run()
        self.close_file()
