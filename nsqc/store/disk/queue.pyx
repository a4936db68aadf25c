"""A disk queue in go-diskqueue's format: its state, reading, damage, writing. See the .pxd."""

# types: from nsqc.log import Log
# types: from nsqc.store.disk.manager import Done
cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from nsqc.store.disk import fileio, recovery
from nsqc.store.disk.fileio cimport MAX_NUMBER_BYTES, PATH_BYTES, QUIET_NS, SHORT_BYTES, IoPool, Job
from nsqc.store.disk.fileio import prefix_of
from nsqc.store.disk.recovery import queue_files
from nsqc.store.disk.segment cimport (FEW_FILES, HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_TIMESTAMP_AT, Block, ReadJob,
                                      WriteBuf, WriteJob, count_records, data_moved, end_formers, forget_formers,
                                      out_append, out_body_bytes, out_clear, out_free, out_pop, record_load, run_read,
                                      run_write, spare_free, spare_keep, spare_use, window_adopt, window_free)
from nsqc.store.files import bad_name, keep_bad
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Unacked, message_unref, unacked_add, unacked_count, unacked_done, unacked_drop
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16


# ====================================================================== state
# What a sync has to do.

cdef bint is_durable(DiskQueue queue) noexcept:
    """Whether all written data has been synced; a sync in progress does not count."""
    return queue.synced_number == queue.write_number and queue.synced_at == queue.write_at


cdef list data_to_sync(DiskQueue queue):
    """(path, offset) of the files with data that may not be durable. A non-negative offset marks data that must be
    rewritten, since its sync has failed."""
    cdef int64_t number
    cdef list numbers = list(range(queue.synced_number, queue.write_number))
    if queue.write_at:
        numbers.append(queue.write_number)
    if not queue.rewrite:
        return [(queue.path_of(number), -1) for number in numbers]
    return [(queue.path_of(number), queue.synced_at if number == queue.synced_number else 0) for number in numbers]


# ---------------------------------------------------------------------- the read file

cdef void drop_block(DiskQueue queue) noexcept:
    """Also forgets the known end of the read file."""
    window_free(&queue.window)
    queue.window.start = queue.window.limit = 0
    queue.block_end = -1


cdef void drop_ahead(DiskQueue queue) noexcept:
    window_free(&queue.ahead.window)
    memset(&queue.ahead, 0, sizeof(queue.ahead))


cdef int leave_file(DiskQueue queue) except -1:
    """The read file has been read to its end: switch to the next one."""
    path = queue.path_of(queue.read_number)
    becomes = ""
    if queue.damaged_number == queue.read_number and not queue.damaged_linked:
        becomes = bad_name(path)
    queue.done_files.append((path, becomes))
    queue.done_numbers.append(queue.read_number)
    queue.read_number += 1
    queue.read_at = 0
    queue.complete = False
    drop_block(queue)
    queue.active = True
    queue.unsynced += 1
    if not queue.sync_asked:
        queue.sync_asked = True
        queue.syncer.start(queue)
    return 0


# ====================================================================== damage

cdef enum:
    RETRY_NS = 200000000        # until a file that could not be read is read again


cdef int cannot_read(DiskQueue queue, int error) except -1:
    if queue.read_error != error:
        queue.log.error("DISKQUEUE(%s): cannot read %s - %s", queue.name, queue.path_of(queue.read_number),
                        os.strerror(error))
    retry_later(queue, error)
    return 0


cdef void retry_later(DiskQueue queue, int error) noexcept:
    queue.read_error = error
    queue.retry_ns = monotonic_ns() + RETRY_NS


cdef int skip_missing(DiskQueue queue, ReadJob *job) except -1:
    """The read file does not exist: skip to the next."""
    cdef int64_t missing = queue.read_number, following
    queue.read_error = 0
    end_write_file(queue)
    following = max(missing + 1, job.following if job.following else min(job.last_number, queue.write_number))
    if job.following == 0 and queue.write_number - missing > FEW_FILES:
        numbers = queue_files(queue.folder, queue.name)
        following = min([number for number in numbers if missing < number < queue.write_number] + [queue.write_number])
    if following == missing + 1:
        queue.log.error("DISKQUEUE(%s): %s is missing", queue.name, queue.path_of(missing))
    else:
        queue.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", queue.name, following - missing,
                        queue.path_of(missing))
    leave_file(queue)
    queue.read_number = following
    recount(queue, job)
    if queue.depth <= buffered_records(queue) and not is_drained(queue):
        queue.depth = buffered_records(queue) + 1   # not all files were counted; their messages must not be skipped
    return 0


cdef int skip_damage(DiskQueue queue, int64_t upto, ReadJob *job) except -1:
    """Skips to this offset: no record lies between it and the read position."""
    # Reported once per file, with all later damage in it.
    if queue.damaged_number == queue.read_number:
        return 0
    end_write_file(queue)
    path = queue.path_of(queue.read_number)
    queue.damaged_number = queue.read_number
    queue.damaged_linked = keep_bad(path)
    queue.new_file = True
    queue.log.error("DISKQUEUE(%s): %s is damaged at %d: %d bytes are unreadable, %d intact messages follow; "
                    "kept as .bad", queue.name, path, queue.read_at, job.lost, job.here)
    recount(queue, job)
    return 0


cdef void end_write_file(DiskQueue queue) noexcept:
    """Makes writing switch to a new file: a damaged or missing one gets no more data, once no write is in progress."""
    if queue.read_number == queue.write_number and queue.writing is NULL:
        queue.window.limit = queue.write_at
        queue.complete = True
        queue.write_number += 1
        queue.write_at = 0
        queue.new_file = True


cdef void recount(DiskQueue queue, ReadJob *job) noexcept:
    """Sets depth after damage: the thread's count, and records written since."""
    queue.depth = job.here + job.later + queue.committed - job.committed + buffered_records(queue)
    count_operations(queue, 1)


cdef void correct_depth(DiskQueue queue) noexcept:
    """The files have been read to their end, so depth is the count of buffered records."""
    cdef int64_t buffered = buffered_records(queue)
    if queue.depth != buffered:
        queue.log.error("DISKQUEUE(%s): the files have %d messages fewer than the positions recorded", queue.name,
                        queue.depth - buffered)
        queue.depth = buffered
        count_operations(queue, 1)


# ====================================================================== reading

cdef bint next_block(DiskQueue queue) noexcept:
    """Whether the block has a record at the read position. If one is coming, on_readable() follows."""
    cdef int64_t number, at
    while True:
        number, at = queue.read_number, queue.read_at
        if is_drained(queue):
            correct_depth(queue)
            return False
        if queue.ahead.answer == 1 and queue.ahead_number == number and queue.ahead.begin == at:
            queue.complete = queue.complete or number < queue.write_number and queue.ahead_whole
            adopt(queue, &queue.ahead)
            memset(&queue.ahead, 0, sizeof(queue.ahead))
            read_ahead(queue)
            return True
        if queue.closed:
            return False
        if queue.reading is NULL:
            if queue.read_error and queue.io.threads and monotonic_ns() < queue.retry_ns:
                return False
            begin_read(queue, number, at, False)
        if queue.read_at < queue.block_end:
            return True
        if queue.reading is not NULL:
            queue.waiting = True
            return False
        if queue.read_error:
            return False


cdef void begin_read(DiskQueue queue, int64_t number, int64_t at, bint probes) noexcept:
    """Starts reading records at a position. probes: only to detect damage."""
    cdef ReadJob *job = <ReadJob *> calloc(1, sizeof(ReadJob))
    if job is NULL:
        retry_later(queue, ENOMEM)
        return
    job.job.run = run_read
    job.c_prefix = PyBytes_AS_STRING(queue.prefix)
    job.number = number
    job.at = at
    job.probes = probes
    job.limit = queue.write_at if number == queue.write_number else -1
    job.max_record = queue.max_record
    job.want = queue.want
    job.last_number = queue.write_number
    job.last_at = queue.write_at
    job.committed = queue.committed
    job.counts = number == queue.read_number and number != queue.damaged_number
    queue.active = True
    queue.reading = job
    queue.io.submit(&job.job, queue)


cdef void finish_read(DiskQueue queue, ReadJob *job) noexcept:
    cdef bint waited = queue.waiting
    if job.stale:
        free_read(job)
        return
    queue.reading = NULL
    try:
        if job.probes and not waited and job.block.answer == 1 and job.block.begin == job.at:
            pass        # no damage
        elif job.number == queue.read_number and job.at == queue.read_at and queue.read_at >= queue.block_end:
            use_block(queue, job)
        elif job.block.answer == 1 and job.block.begin == job.at:
            keep_ahead(queue, job)
    except Exception as failure:
        queue.log.error("DISKQUEUE(%s): cannot read %s - %r", queue.name, queue.path_of(job.number), failure)
        drop_block(queue)
        retry_later(queue, EIO)
    free_read(job)
    if queue.owner is None or queue.reading is not NULL:
        return
    if queue.read_error:
        queue.waiting = False
        queue.owner.on_unreadable()
    elif waited:
        queue.waiting = False
        queue.owner.on_readable()


cdef int use_block(DiskQueue queue, ReadJob *job) except -1:
    """Accepts the block read at the read position."""
    cdef Block *block = &job.block
    if (not job.counts and job.number != queue.damaged_number
            and (block.answer == 0 or block.answer == -ENOENT or block.begin > job.at)):
        # It was prefetched, and there is damage: read it again, and count the remaining records.
        begin_read(queue, job.number, job.at, False)
        return 0
    if block.answer == -ENOENT:
        skip_missing(queue, job)
        return 0
    if block.answer < 0:
        cannot_read(queue, -block.answer)
        return 0
    queue.read_error = 0
    if job.limit < 0 and not queue.complete:
        queue.complete = True
    if queue.complete and job.number < queue.write_number and job.limit >= 0:
        # It was the write file when the read started; its end is known by now.
        block.window.limit = max(block.window.limit, queue.window.limit)
    if block.answer == 0:
        if job.at < block.window.limit:
            skip_damage(queue, block.window.limit, job)
        queue.window.limit = block.window.limit
        queue.read_at = block.window.limit
        if queue.complete or queue.read_number < queue.write_number:
            leave_file(queue)
        return 0
    if block.begin > queue.read_at:
        skip_damage(queue, block.begin, job)
        queue.read_at = block.begin
    adopt(queue, block)
    queue.want = min(4 * queue.want, MOST_WANT)
    read_ahead(queue)
    return 0


cdef void adopt(DiskQueue queue, Block *block) noexcept:
    """Makes this the current block; takes over its memory."""
    cdef int64_t limit = queue.window.limit
    window_free(&queue.window)
    queue.window = block.window
    if queue.complete and limit > queue.window.limit:
        queue.window.limit = limit
    queue.block_end = block.end
    memset(&block.window, 0, sizeof(block.window))


cdef void keep_ahead(DiskQueue queue, ReadJob *job) noexcept:
    """Keeps a prefetched block."""
    drop_ahead(queue)
    queue.ahead = job.block
    queue.ahead_number = job.number
    queue.ahead_whole = job.limit < 0
    memset(&job.block, 0, sizeof(job.block))


cdef void read_ahead(DiskQueue queue) noexcept:
    """Prefetches the next block, once blocks have their full size."""
    cdef int64_t number = queue.read_number, at = queue.block_end
    if queue.want < MOST_WANT or queue.reading is not NULL or queue.io.threads == 0:
        return
    if queue.complete and at >= queue.window.limit:
        number += 1
        at = 0
    if number < queue.write_number or (number == queue.write_number and at + MOST_WANT <= queue.write_at):
        drop_ahead(queue)
        begin_read(queue, number, at, False)


cdef void free_read(ReadJob *job) noexcept:
    window_free(&job.block.window)
    free(job)


# ====================================================================== writing

cdef bint write_next(DiskQueue queue, bint partial) noexcept:
    cdef WriteJob *job
    cdef WriteBuf *out = next_out(queue)
    if queue.writing is not NULL or out.records == 0:
        return False
    job = <WriteJob *> calloc(1, sizeof(WriteJob))
    if job is NULL:
        queue.write_error = ENOMEM
        return False
    job.job.run = run_write
    job.c_prefix = PyBytes_AS_STRING(queue.prefix)
    job.out = out[0]
    memset(out, 0, sizeof(out[0]))
    if out is &queue.out:
        spare_use(&queue.spare, out)
    job.number = queue.write_number
    job.at = queue.write_at
    job.max_file = queue.max_file
    job.partial = partial
    job.job.bytes = job.out.length
    # After a while, a write may need a path lookup and a read of the file's end, from a busy disk.
    job.job.is_short = job.out.length <= SHORT_BYTES and monotonic_ns() - queue.wrote_ns < QUIET_NS
    queue.writing = job
    queue.io.submit(&job.job, queue)
    return True


cdef WriteBuf *next_out(DiskQueue queue) noexcept:
    """The buffer to write next."""
    return &queue.kept if queue.kept.records else &queue.out


cdef void finish_write(DiskQueue queue, WriteJob *job) noexcept:
    cdef int64_t records = job.out.records, body_bytes = 0
    cdef int error = job.error
    queue.wrote_ns = monotonic_ns()
    if job.stale:
        remove_stale(queue, job.number, job.end_number)
        free_write(job, &queue.unacked)
        return
    queue.writing = NULL
    queue.write_error = error
    if job.kept > job.out.taken:
        try:
            written(queue, job)
        except Exception as failure:
            queue.log.error("DISKQUEUE(%s): after a write - %r", queue.name, failure)
    if error:
        if queue.keeps:
            keep_unwritten(queue, job)
        else:
            body_bytes = out_body_bytes(&job.out)
            # Only these: records that came meanwhile are written next, and their waiters notified then.
            queue.depth -= records
    if not queue.closed:
        spare_keep(&queue.spare, &job.out)
    free_write(job, &queue.unacked)
    if queue.owner is not None:
        queue.owner.on_written(error, records, body_bytes)


cdef void remove_stale(DiskQueue queue, int64_t first, int64_t last) noexcept:
    """The queue was emptied during the write: removes its files."""
    cdef int64_t number
    try:
        queue.syncer.stale_writes -= 1
        queue.syncer.remove([(queue.path_of(number), "") for number in range(first, last + 1)])
    except Exception as failure:
        queue.log.error("DISKQUEUE(%s): %r", queue.name, failure)


cdef int written(DiskQueue queue, WriteJob *job) except -1:
    """Records are in files now: all of them, or with partial some."""
    cdef int64_t first = queue.write_number, records
    cdef bint drained = is_drained(queue)
    records = job.out.records if not job.error else count_records(&job.out, job.kept)
    queue.new_file = queue.new_file or job.at == 0 or job.end_number > first
    queue.write_number = job.end_number
    queue.write_at = job.end_at
    queue.committed += records
    end_formers(&job.out, &queue.unacked, job.kept)
    if queue.write_number > first:
        if queue.read_number == first:
            queue.window.limit = job.first_end
            queue.complete = True
            if queue.read_at == job.first_end:
                leave_file(queue)
    elif drained and job.out.taken == 0 and not job.error and queue.reading is NULL:
        # The reader has caught up with the writer: the buffer becomes the block, without reading the file.
        drop_block(queue)
        window_adopt(&queue.window, job.out.c_data, job.out.room)
        queue.window.start = job.at
        queue.window.length = job.out.length
        queue.window.limit = queue.block_end = job.end_at
        data_moved()
        job.out.c_data = NULL
        job.out.room = 0
    if job.error:
        job.out.taken = job.kept
        job.out.records -= records
    count_operations(queue, records)
    return 0


cdef void keep_unwritten(DiskQueue queue, WriteJob *job) noexcept:
    """After a failed write, its records come first again. Needs no memory, since lack of memory may be the cause."""
    queue.kept = job.out
    memset(&job.out, 0, sizeof(job.out))


cdef Message *pop_buffer(DiskQueue queue, uint16_t *attempts) noexcept:
    cdef WriteBuf *out = next_out(queue)
    cdef Message *message
    if queue.writing is not NULL or out.records == 0:
        return NULL
    message = out_pop(out, attempts, &queue.place)
    if message is not NULL:
        queue.depth -= 1
    return message


cdef int64_t discard_buffers(DiskQueue queue, int64_t *body_bytes) noexcept:
    """Like DiskQueue.discard()."""
    cdef int64_t records = queue.kept.records + queue.out.records
    if body_bytes is not NULL:
        body_bytes[0] += out_body_bytes(&queue.kept) + out_body_bytes(&queue.out)
    queue.depth -= records
    forget_formers(&queue.kept, &queue.unacked)
    out_free(&queue.kept)
    forget_formers(&queue.out, &queue.unacked)
    out_clear(&queue.out)
    return records


cdef void free_write(WriteJob *job, Unacked *unacked) noexcept:
    forget_formers(&job.out, unacked)
    out_free(&job.out)
    free(job)


# ====================================================================== queue
# A queue in files: batched writes, block reads, a new file when one is full. See docs/ondisk.md.

cdef enum:
    DRAINED_BYTES = 1048576     # a smaller file is kept


@cython.final
@cython.no_gc_clear
cdef class DiskQueue(LoopWork):
    """The disk queue of one topic or channel. Created by the manager. Raises OSError if it cannot be opened."""

    def __init__(self, str name not None, str folder not None, int64_t max_bytes_per_file, int64_t max_msg_size,
                 IoPool io not None, syncer: Syncer, log: Log, files: dict[int, int] | None = None,
                 first: int | None = None):
        """files: as returned by index.queue_files(); None: lists the folder. first: the queue is new and starts with
        the file of that number, without checking any file."""
        self.name = name
        self.folder = folder
        self.prefix = os.fsencode(prefix_of(folder, name))
        if len(self.prefix) + MAX_NUMBER_BYTES > PATH_BYTES:
            raise OSError(ENOENT, "the path of the data files is too long", folder)
        self.max_file = max_bytes_per_file
        self.max_record = HEAD_BYTES + max_msg_size
        self.io = io
        self.syncer = syncer
        self.sync_every = syncer.every
        self.log = log
        self.keeps = True
        self.damaged_number = self.block_end = -1
        self.want = FIRST_WANT
        self.done_files = []
        self.done_numbers = []
        self.copies = []
        if first is None:
            self._load(files)
        else:
            self.read_number = self.write_number = self.synced_number = first
        if not is_drained(self):
            # As in nsqd, damage at the read position is noticed now, not by the first consumer.
            begin_read(self, self.read_number, self.read_at, True)

    def __dealloc__(self):
        # No job is in progress: each holds a reference.
        forget_formers(&self.kept, &self.unacked)
        out_free(&self.kept)
        forget_formers(&self.out, &self.unacked)
        out_free(&self.out)
        spare_free(&self.spare)
        window_free(&self.window)
        window_free(&self.ahead.window)

    cpdef str path_of(self, int64_t number):
        """The path of a data file."""
        return fileio.path_of(self.folder, self.name, number)

    @property
    def meta_path(self) -> str:
        """The path of the positions file."""
        return fileio.path_of(self.folder, self.name, fileio.META)

    @property
    def write_path(self) -> str:
        """The path of the current write file."""
        return self.path_of(self.write_number)

    @property
    def dirty(self) -> bool:
        """Whether records wait in a buffer."""
        return buffered_records(self) > 0

    # ------------------------------------------------------------------ for the syncer

    def meta_text(self) -> bytes:
        """The contents of the positions file: buffered records do not count, and unfinished ones still wait."""
        cdef Place *oldest = self.unacked.oldest
        cdef int64_t depth = self.depth - buffered_records(self)
        if oldest is NULL:
            return recovery.encode(depth, self.read_number, self.read_at, self.write_number, self.write_at)
        return recovery.encode(depth + unacked_count(&self.unacked), oldest.number, oldest.at,
                               self.write_number, self.write_at)

    @property
    def rests(self) -> bool:
        """Whether it rests after a sync."""
        return False

    @property
    def needs_sync(self) -> bool:
        """Whether positions or data have changed since the last sync started."""
        return self.unsynced > 0 or bool(self.done_files) or not is_durable(self)

    def sync_began(self) -> tuple[Data, bool, bytes, Done]:
        """The work of a sync that starts now: (data to sync, whether the folder has new files, positions, files to
        remove). Data of the copies comes first: positions must not get ahead of it."""
        cdef Place *oldest = self.unacked.oldest
        cdef DiskQueue copy
        cdef list data = [], done
        cdef Py_ssize_t count = len(self.done_files)
        cdef bint folder = self.new_file
        for copy in self.copies:
            # Its own sync may be in progress, but end after this one, or fail.
            if not is_durable(copy) or copy.rewrite:
                data += data_to_sync(copy)
                folder = folder or copy.new_file or copy.syncing_folder
        data += data_to_sync(self)
        if oldest is not NULL:
            count = sum(1 for number in self.done_numbers if number < oldest.number)
        done = self.done_files[:count]
        del self.done_files[:count], self.done_numbers[:count]
        self.syncing_folder = self.new_file
        self.new_file = False
        self.syncing_number, self.syncing_at = self.write_number, self.write_at
        self.unsynced = 0
        self.sync_asked = False
        return data, folder, self.meta_text(), done

    def sync_succeeded(self):
        """The data that existed when the sync started is durable."""
        self.rewrite = self.syncing_folder = False
        if self.synced_number <= self.syncing_number:
            self.synced_number, self.synced_at = self.syncing_number, self.syncing_at

    def sync_failed(self, done: Done):
        """The work of a failed sync must be repeated, and its data rewritten first: after a failed fsync the kernel may
        mark pages clean that never reached the disk."""
        cdef DiskQueue copy
        self.rewrite = self.new_file = True
        self.done_files = done + self.done_files
        self.done_numbers = [-1] * len(done) + self.done_numbers
        self.unsynced += 1
        for copy in self.copies:
            if not copy.rewrite:
                copy.sync_failed([])
                copy.syncer.began(copy)

    def was_active(self) -> bool:
        """Whether it was read or written since the last call; for the idle check."""
        cdef bint was = self.active
        self.active = False
        return was

    def _load(self, files):
        """Determines the positions from the positions file and the data files."""
        start = recovery.open_queue(self.folder, self.name, self.max_record, self.log, files)
        self.depth, self.read_number, self.read_at, self.write_number, self.write_at = start.positions
        self.synced_number, self.synced_at = start.synced
        self.new_file = start.changed
        self.done_files = [(path, "") for path in start.consumed]
        self.done_numbers = [-1] * len(self.done_files)
        if start.changed or self.done_files:
            count_operations(self, 1)

    cdef int64_t buffered(self) noexcept:
        return buffered_records(self)

    cdef void job_done(self, Job *job) noexcept:
        if job.run is run_write:
            finish_write(self, <WriteJob *> job)
        else:
            finish_read(self, <ReadJob *> job)

    # ------------------------------------------------------------------ writing

    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept:
        if out_append(&self.out, message, attempts, former) < 0:
            return -1
        self.depth += 1
        return 0

    cdef bint begin_write(self, bint partial) noexcept:
        return write_next(self, partial)

    cdef int64_t discard(self, int64_t *body_bytes) noexcept:
        return discard_buffers(self, body_bytes)

    # ------------------------------------------------------------------ reading

    cdef Message *pop(self, uint16_t *attempts) noexcept:
        self.place = NULL
        while self.read_at >= self.block_end:
            if not next_block(self):
                if self.write_error and self.keeps and is_drained(self):
                    return pop_buffer(self, attempts)
                return NULL
        return self._take(attempts)

    cdef int64_t oldest_ns(self, uint32_t *attempts) noexcept:
        cdef const char *c_record
        while self.read_at >= self.block_end:
            if not next_block(self):
                return 0
        c_record = self.window.c_data + (self.read_at - self.window.start)
        attempts[0] = load_u16(c_record + RECORD_ATTEMPTS_AT)
        return load_i64(c_record + RECORD_TIMESTAMP_AT)

    cdef Message *_take(self, uint16_t *attempts) noexcept:
        """The record at the read position, which is complete in the block."""
        cdef const char *c_record = self.window.c_data + (self.read_at - self.window.start)
        cdef int64_t length = SIZE_BYTES + <int64_t> load_i32(c_record)
        cdef Message *message = record_load(c_record, attempts)
        if message is not NULL and self.tracks:
            self.place = unacked_add(&self.unacked, self.read_number, self.read_at, length)
            if self.place is NULL:
                message_unref(message)
                message = NULL
        if message is NULL:
            self.read_error = ENOMEM
            if self.owner is not None:
                self.owner.on_unreadable()
            return NULL
        self.read_at += length
        self.depth -= 1
        try:
            if self.complete and self.read_at >= self.window.limit:
                leave_file(self)
        except Exception as failure:
            self.log.error("DISKQUEUE(%s): %r", self.name, failure)
        if self.depth <= buffered_records(self) and not is_drained(self):
            # The recorded depth was too low: callers that rely on depth must not skip the rest.
            self.depth = buffered_records(self) + 1
        count_operations(self, 1)
        return message

    cdef void done(self, Place *place) noexcept:
        if place is not NULL and unacked_done(&self.unacked, place) and self.unsynced == 0 and not self.closed:
            self.unsynced = 1
            self.syncer.began(self)

    cdef int64_t done_before(self, int64_t serial) noexcept:
        cdef int64_t count = 0
        while self.unacked.oldest is not NULL and self.unacked.oldest.serial < serial:
            self.done(self.unacked.oldest)
            count += 1
        return count

    cdef void release_owner(self) noexcept:
        self.owner = None

    cdef void drop_out(self) noexcept:
        unacked_drop(&self.unacked)

    # ------------------------------------------------------------------ administration

    def empty(self):
        """Drops everything; the next file has a new number."""
        self._forget_all()
        self.read_number = self.write_number
        self.unsynced += 1
        self.syncer.start(self)

    def delete(self):
        """Drops everything, and the positions."""
        if self.closed:
            return
        self._forget_all()
        self.closed = self.deleted = True
        self.syncer.deleted(self)

    cdef int _forget_all(self) except -1:
        """Empties the queue; the next file gets an unused number."""
        cdef int64_t number, last = self.write_number
        self.discard(NULL)
        if self.writing is not NULL:
            # It may create new files; finish_write() removes them.
            last += self.writing.out.records
            self.writing.stale = True
            self.writing = NULL
            self.syncer.stale_writes += 1
        if self.reading is not NULL:
            self.reading.stale = True
            self.reading = NULL
        drop_block(self)
        drop_ahead(self)
        unacked_drop(&self.unacked)
        self.depth = self.read_error = self.write_error = 0
        self.complete = self.waiting = False
        if self.write_number - self.read_number < FEW_FILES:
            numbers = range(self.read_number, self.write_number + 1)
        else:
            # In order: a kill during removal leaves no gap between them.
            numbers = sorted(number for number in queue_files(self.folder, self.name)
                             if self.read_number <= number <= self.write_number)
        self.done_files += [(self.path_of(number), "") for number in numbers]
        self.done_numbers = [-1] * len(self.done_files)
        self.read_number = self.write_number = last + 1
        self.read_at = self.write_at = 0
        self.synced_number, self.synced_at = self.write_number, 0
        return 0

    def close(self):
        """Writes the buffers and closes, with no job in progress; the positions are on disk once the syncer has
        settled.

        On a full disk it keeps the records that fit. Raises OSError if messages are lost.
        """
        if self.closed:
            return
        error = 0
        self.keeps = True       # records that do not fit are counted, not rolled back: they were acknowledged
        while self.buffered() and not error:
            if not self.begin_write(True) or self.write_error:
                error = self.write_error or ENOMEM
        lost = self.buffered()
        self.closed = True
        try:
            self.syncer.finish(self)
        finally:
            self.discard(NULL)
            self.release()
        if error:
            raise OSError(error, f"{os.strerror(error)}: {lost} messages are lost", self.write_path)

    def release(self):
        """Frees memory that an idle queue does not need."""
        if self.reading is NULL:
            drop_block(self)
            drop_ahead(self)
            self.want = FIRST_WANT
        if self.out.length == 0:
            out_free(&self.out)
        spare_free(&self.spare)
        self._leave_drained()

    def _leave_drained(self):
        """Removes a large file that was read to its end, even if it has room left: an idle empty queue should take no
        space, or consumed messages might keep a disk full."""
        if (not self.closed and self.write_at >= DRAINED_BYTES and is_drained(self) and self.depth == 0
                and self.writing is NULL and self.reading is NULL and self.unacked.oldest is NULL):
            self.write_number += 1
            self.write_at = 0
            leave_file(self)

    def check_rules(self):
        """Checks the rules in the debug build; called between two callbacks of the loop."""
        if self.owner is not None:
            self.owner.check_rules()
