"""A queue in files: batched writes, block reads, rolling, and what to do about damage. See docs/ondisk.md."""

cimport cython
from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

import os

from nsqc.store.disk import diskmeta
from nsqc.store.disk import recovery
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.disk.filejobs cimport FEW_FILES, PATH_BYTES, run_read, run_write
from nsqc.store.message cimport message_new, message_unref
from nsqc.store.disk.segment cimport HEAD_BYTES, SIZE_BYTES, record_load, record_store, window_adopt, window_free
from nsqc.store.disk.unacked cimport unacked_add, unacked_count, unacked_done, unacked_drop
from nsqc.store.disk.writebuf cimport (count_records, data_free, data_moved, forget_formers, former_room, out_clear,
                                       out_free, out_room)
from nsqc.wire.hton cimport load_i32

cdef enum:
    SHORT_BYTES = 131072        # a write of so much is short, if the page cache takes it
    MOST_SPARE = 1048576        # bytes of a written buffer that are kept for the next one
    ALL_SPARE = 67108864        # of all queues
    FIRST_WANT = 16384          # bytes of the first block of a queue; each further one is four times as large
    MOST_WANT = 262144
    RETRY_NS = 200000000        # what could not be read is not tried again before


cdef int64_t all_spare = 0


cdef class QueueWatcher:
    """Who hears from a disk queue."""

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        pass

    cdef void on_readable(self) noexcept:
        pass

    cdef void on_unreadable(self) noexcept:
        pass

    cdef void check_rules(self) noexcept:
        pass


@cython.final
@cython.no_gc_clear     # __dealloc__ needs the prefix
cdef class DiskQueue(JobOwner):
    """One topic's or channel's queue on disk. Made by the manager. Raises OSError where it cannot be opened."""

    def __init__(self, str name not None, str folder not None, int64_t max_bytes_per_file, int64_t max_msg_size,
                 IoPool io not None, syncer, log, files=None, first=None):
        """files: what there is of it, as diskmeta.queue_files() has it; None: the folder is listed. first: the queue
        is new, and begins with the file of that number; nothing is looked at."""
        self.name = name
        self.folder = folder
        self.prefix = os.fsencode(f"{folder}/{name}.diskqueue.")
        if len(self.prefix) + 24 > PATH_BYTES:
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
        if not self._is_drained():
            # Damage where reading begins is noticed now, as nsqd does, not by the first consumer.
            self._begin_read(self.read_number, self.read_at, True)

    def __dealloc__(self):
        # No job is under way: each holds a reference.
        forget_formers(&self.kept, &self.unacked)
        out_free(&self.kept)
        forget_formers(&self.out, &self.unacked)
        out_free(&self.out)
        self._drop_spare()
        window_free(&self.window)
        window_free(&self.ahead.window)

    def _load(self, files):
        """Positions from the meta file and the files themselves."""
        start = recovery.open_queue(self.folder, self.name, self.meta_path, self.max_record, self.path_of, self.log,
                                    files)
        self.depth, self.read_number, self.read_at, self.write_number, self.write_at, consumed, changed = start
        self.synced_number, self.synced_at = self.write_number, self.write_at
        self.done_files = [(path, "") for path in consumed]
        self.done_numbers = [-1] * len(consumed)
        if changed or self.done_files:
            self._count(1)

    # ------------------------------------------------------------------ names

    cpdef str path_of(self, int64_t number):
        """The path of a data file."""
        return f"{self.folder}/{self.name}.diskqueue.{number:06d}.dat"

    @property
    def meta_path(self) -> str:
        """The path of the positions."""
        return f"{self.folder}/{self.name}.diskqueue.meta.dat"

    @property
    def write_path(self) -> str:
        """The path of the file that is written."""
        return self.path_of(self.write_number)

    @property
    def dirty(self) -> bool:
        """Whether records wait in a buffer."""
        return self.buffered() > 0

    def meta_text(self) -> bytes:
        """The positions as the meta file has them; buffers do not count, and records that are out wait."""
        cdef Place *oldest = self.unacked.oldest
        if oldest is NULL:
            return diskmeta.encode(self.depth - self.buffered(), self.read_number, self.read_at,
                                   self.write_number, self.write_at)
        return diskmeta.encode(self.depth - self.buffered() + unacked_count(&self.unacked), oldest.number, oldest.at,
                               self.write_number, self.write_at)

    cdef int64_t buffered(self) noexcept:
        return (self.kept.records + self.out.records
                + (self.writing.out.records if self.writing is not NULL else 0))

    # ------------------------------------------------------------------ writing

    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept:
        if out_room(&self.out, <int64_t> HEAD_BYTES + message.size) < 0:
            return -1
        if former is not NULL:
            if former_room(&self.out, 1) < 0:
                return -1
            self.out.formers[self.out.former_end].offset = self.out.length
            self.out.formers[self.out.former_end].place = former
            self.out.former_end += 1
        record_store(self.out.c_data + self.out.length, message, attempts)
        self.out.length += <int64_t> HEAD_BYTES + message.size
        self.out.records += 1
        self.depth += 1
        return 0

    cdef bint begin_write(self, bint partial) noexcept:
        cdef WriteJob *job
        cdef OutBuf *out = &self.kept if self.kept.records else &self.out
        if self.writing is not NULL or out.records == 0:
            return False
        job = <WriteJob *> calloc(1, sizeof(WriteJob))
        if job is NULL:
            self.write_error = ENOMEM
            return False
        job.job.run = run_write
        job.c_prefix = PyBytes_AS_STRING(self.prefix)
        job.out = out[0]
        memset(out, 0, sizeof(out[0]))
        if out is &self.out:
            self._take_spare()
        job.number = self.write_number
        job.at = self.write_at
        job.max_file = self.max_file
        job.partial = partial
        job.job.bytes = job.out.length
        job.job.is_short = job.out.length <= SHORT_BYTES
        self.writing = job
        self.io.submit(&job.job, self)
        return True

    cdef void _take_spare(self) noexcept:
        """The memory of the last buffer for the next one: growing it again would cost more than filling it."""
        global all_spare
        self.out.c_data = self.c_spare
        self.out.room = self.spare_room
        all_spare -= self.spare_room
        self.c_spare = NULL
        self.spare_room = 0

    cdef void _keep_spare(self, OutBuf *out) noexcept:
        global all_spare
        if self.c_spare is NULL and 0 < out.room <= MOST_SPARE and all_spare + out.room <= ALL_SPARE:
            self.c_spare = out.c_data
            self.spare_room = out.room
            all_spare += out.room
            out.c_data = NULL
            out.room = 0

    cdef void _drop_spare(self) noexcept:
        global all_spare
        all_spare -= self.spare_room
        data_free(self.c_spare)
        self.c_spare = NULL
        self.spare_room = 0

    cdef void job_done(self, Job *job) noexcept:
        if job.run is run_write:
            self._write_done(<WriteJob *> job)
        else:
            self._read_done(<ReadJob *> job)

    cdef void _write_done(self, WriteJob *job) noexcept:
        cdef int64_t records = job.out.records, body_bytes = 0
        cdef int error = job.error
        if job.stale:
            self._remove_stale(job.number, job.end_number)
            free_write(job, &self.unacked)
            return
        self.writing = NULL
        self.write_error = error
        if job.kept > job.out.taken:
            try:
                self._written(job)
            except Exception as failure:
                self.log.error("DISKQUEUE(%s): after a write - %r", self.name, failure)
        if error:
            if self.keeps:
                self._keep_unwritten(job)
            else:
                body_bytes = job.out.length - job.out.taken - HEAD_BYTES * records
                # Only these: what came meanwhile has a write of its own, and whoever waits for it hears of that one.
                self.depth -= records
        if not self.closed:
            self._keep_spare(&job.out)
        free_write(job, &self.unacked)
        if self.watcher is not None:
            self.watcher.on_written(error, records, body_bytes)

    def _remove_stale(self, int64_t first, int64_t last):
        self.syncer.stale_writes -= 1
        try:
            self.syncer.remove([(self.path_of(number), "") for number in range(first, last + 1)])
        except Exception as failure:
            self.log.error("DISKQUEUE(%s): %r", self.name, failure)

    cdef int _written(self, WriteJob *job) except -1:
        """Records have gone into files: all of them, or with partial some."""
        cdef int64_t begun = self.write_number, records
        cdef bint drained = self._is_drained()
        records = job.out.records if not job.error else count_records(&job.out, job.kept)
        self.new_file = self.new_file or job.at == 0 or job.end_number > begun
        self.write_number = job.end_number
        self.write_at = job.end_at
        self.committed += records
        while (job.out.former_first < job.out.former_end
               and job.out.formers[job.out.former_first].offset < job.kept):
            unacked_done(&self.unacked, job.out.formers[job.out.former_first].place)
            job.out.former_first += 1
        if self.write_number > begun:
            if self.read_number == begun:
                self.window.limit = job.first_end
                self.complete = True
                if self.read_at == job.first_end:
                    self._leave_file()
        elif drained and job.out.taken == 0 and not job.error and self.reading is NULL:
            # Nothing lies between reader and writer: what was written need not be read again.
            self._drop_block()
            window_adopt(&self.window, job.out.c_data, job.out.room)
            self.window.start = job.at
            self.window.length = job.out.length
            self.window.limit = self.block_end = job.end_at
            data_moved()        # it is a read block now
            job.out.c_data = NULL
            job.out.room = 0
        if job.error:
            job.out.taken = job.kept
            job.out.records -= records
        self._count(records)
        return 0

    cdef void _keep_unwritten(self, WriteJob *job) noexcept:
        """After a failed write: its records are in front again. That takes no memory, which may be what has failed."""
        self.kept = job.out
        memset(&job.out, 0, sizeof(job.out))

    cdef int64_t discard(self, int64_t *body_bytes) noexcept:
        cdef int64_t records = self.kept.records + self.out.records
        if body_bytes is not NULL:
            body_bytes[0] += (self.kept.length - self.kept.taken + self.out.length - self.out.taken
                              - HEAD_BYTES * records)
        self.depth -= records
        forget_formers(&self.kept, &self.unacked)
        out_free(&self.kept)
        forget_formers(&self.out, &self.unacked)
        out_clear(&self.out)
        return records

    cdef void _count(self, int64_t operations) noexcept:
        """Reads and writes that the next sync covers."""
        self.active = True
        if self.unsynced == 0:
            self.syncer.began(self)
        self.unsynced += operations
        if self.unsynced >= self.sync_every and not self.sync_asked:
            self.sync_asked = True
            self.syncer.start(self)

    # ------------------------------------------------------------------ reading

    cdef bint _is_drained(self) noexcept:
        return self.read_number == self.write_number and self.read_at >= self.write_at

    cdef Message *pop(self, uint16_t *attempts) noexcept:
        self.place = NULL
        while self.read_at >= self.block_end:
            if not self._next_block():
                if self.write_error and self.keeps and self._is_drained():
                    return self._pop_buffer(attempts)
                return NULL
        return self._take(attempts)

    cdef Message *_take(self, uint16_t *attempts) noexcept:
        """The record at the read position, which lies whole in the block."""
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
            if self.watcher is not None:
                self.watcher.on_unreadable()
            return NULL
        self.read_at += length
        self.depth -= 1
        try:
            if self.complete and self.read_at >= self.window.limit:
                self._leave_file()
        except Exception as failure:
            self.log.error("DISKQUEUE(%s): %r", self.name, failure)
        if self.depth <= self.buffered() and not self._is_drained():
            # The positions file had said too little: whoever goes by depth must not leave the rest behind.
            self.depth = self.buffered() + 1
        self._count(1)
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

    cdef void let_go(self) noexcept:
        self.watcher = None

    cdef void drop_out(self) noexcept:
        unacked_drop(&self.unacked)

    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept:
        """The oldest record of the buffer. Its former place, if it has one, is still where it lies on disk."""
        cdef OutBuf *out = &self.kept if self.kept.records else &self.out
        cdef Message *message
        if self.writing is not NULL or out.records == 0:
            return NULL
        message = record_load(out.c_data + out.taken, attempts)
        if message is not NULL:
            if out.former_first < out.former_end and out.formers[out.former_first].offset == out.taken:
                self.place = out.formers[out.former_first].place
                out.former_first += 1
            out.taken += HEAD_BYTES + message.size
            out.records -= 1
            self.depth -= 1
            if out.records == 0:
                out_clear(out)
        return message

    cdef void _correct_depth(self) noexcept:
        """Where everything in the files has been read, depth is what the buffers hold."""
        if self.depth != self.buffered():
            self.log.error("DISKQUEUE(%s): %d messages fewer in the files than its positions said", self.name,
                           self.depth - self.buffered())
            self.depth = self.buffered()
            self._count(1)

    cdef bint _next_block(self) noexcept:
        """Whether a record lies at the read position, in the block. If one will, on_readable() tells."""
        cdef int64_t number, at
        while True:
            number, at = self.read_number, self.read_at
            if self._is_drained():
                self._correct_depth()
                return False
            if self.ahead.answer == 1 and self.ahead_number == number and self.ahead.found == at:
                self.complete = self.complete or number < self.write_number and self.ahead_whole
                self._adopt(&self.ahead)
                memset(&self.ahead, 0, sizeof(self.ahead))
                self._read_ahead()
                return True
            if self.closed:
                return False
            if self.reading is NULL:
                if self.read_error and self.io.threads and monotonic_ns() < self.retry_ns:
                    return False
                self._begin_read(number, at, False)
            if self.read_at < self.block_end:
                return True
            if self.reading is not NULL:
                self.waiting = True
                return False
            if self.read_error:
                return False

    cdef void _begin_read(self, int64_t number, int64_t at, bint probes) noexcept:
        cdef ReadJob *job = <ReadJob *> calloc(1, sizeof(ReadJob))
        if job is NULL:
            self.read_error = ENOMEM
            self.retry_ns = monotonic_ns() + RETRY_NS
            return
        job.job.run = run_read
        job.c_prefix = PyBytes_AS_STRING(self.prefix)
        job.number = number
        job.at = at
        job.probes = probes
        job.limit = self.write_at if number == self.write_number else -1
        job.max_record = self.max_record
        job.want = self.want
        job.last_number = self.write_number
        job.last_at = self.write_at
        job.committed = self.committed
        job.counts = number == self.read_number and number != self.damaged_number
        self.active = True
        self.reading = job
        self.io.submit(&job.job, self)

    cdef void _read_done(self, ReadJob *job) noexcept:
        cdef bint waited = self.waiting
        if job.stale:
            window_free(&job.block.window)
            free(job)
            return
        self.reading = NULL
        try:
            if job.probes and not waited and job.block.answer == 1 and job.block.found == job.at:
                pass        # all is well
            elif job.number == self.read_number and job.at == self.read_at and self.read_at >= self.block_end:
                self._use_block(job)
            elif job.block.answer == 1 and job.block.found == job.at:
                self._drop_ahead()
                self.ahead = job.block
                self.ahead_number = job.number
                self.ahead_whole = job.limit < 0
                memset(&job.block, 0, sizeof(job.block))
        except Exception as failure:
            self.log.error("DISKQUEUE(%s): cannot read %s - %r", self.name, self.path_of(job.number), failure)
            self._drop_block()
            self.read_error = EIO
            self.retry_ns = monotonic_ns() + RETRY_NS
        window_free(&job.block.window)
        free(job)
        if self.watcher is None or self.reading is not NULL:
            return
        if self.read_error:
            self.waiting = False
            self.watcher.on_unreadable()
        elif waited:
            self.waiting = False
            self.watcher.on_readable()

    cdef int _use_block(self, ReadJob *job) except -1:
        """What was read where the reader stands."""
        cdef Block *block = &job.block
        if (not job.counts and job.number != self.damaged_number
                and (block.answer == 0 or block.answer == -ENOENT or block.found > job.at)):
            # It was read ahead, and there is damage: once more, and with what is left counted.
            self._begin_read(job.number, job.at, False)
            return 0
        if block.answer == -ENOENT:
            self._missing(job)
            return 0
        if block.answer < 0:
            self._fail_reading(-block.answer)
            return 0
        self.read_error = 0
        if job.limit < 0 and not self.complete:
            self.complete = True
        if self.complete and job.number < self.write_number and job.limit >= 0:
            # It was the write file when the read began; its end is known by now.
            block.window.limit = max(block.window.limit, self.window.limit)
        if block.answer == 0:
            if job.at < block.window.limit:
                self._damaged(block.window.limit, job)
            self.window.limit = block.window.limit
            self.read_at = block.window.limit
            if self.complete or self.read_number < self.write_number:
                self._leave_file()
            return 0
        if block.found > self.read_at:
            self._damaged(block.found, job)
            self.read_at = block.found
        self._adopt(block)
        self.want = min(4 * self.want, MOST_WANT)
        self._read_ahead()
        return 0

    cdef void _adopt(self, Block *block) noexcept:
        """Reads from this block now; takes what it owns."""
        cdef int64_t limit = self.window.limit
        window_free(&self.window)
        self.window = block.window
        if self.complete and limit > self.window.limit:
            self.window.limit = limit
        self.block_end = block.end
        memset(&block.window, 0, sizeof(block.window))

    cdef void _read_ahead(self) noexcept:
        """The block behind the one that is being read, where reading is in earnest."""
        cdef int64_t number = self.read_number, at = self.block_end
        if self.want < MOST_WANT or self.reading is not NULL or self.io.threads == 0:
            return
        if self.complete and at >= self.window.limit:
            number += 1
            at = 0
        if number < self.write_number or (number == self.write_number and at + MOST_WANT <= self.write_at):
            self._drop_ahead()
            self._begin_read(number, at, False)

    cdef void _drop_block(self) noexcept:
        window_free(&self.window)
        self.window.start = self.window.limit = 0
        self.block_end = -1

    cdef void _drop_ahead(self) noexcept:
        window_free(&self.ahead.window)
        memset(&self.ahead, 0, sizeof(self.ahead))

    cdef int _leave_file(self) except -1:
        """The read file is read through: on to the next one."""
        path = self.path_of(self.read_number)
        becomes = ""
        if self.damaged_number == self.read_number and not self.damaged_linked:
            becomes = diskmeta.bad_name(path)
        self.done_files.append((path, becomes))
        self.done_numbers.append(self.read_number)
        self.read_number += 1
        self.read_at = 0
        self.complete = False
        self._drop_block()
        self.active = True
        self.unsynced += 1
        if not self.sync_asked:
            self.sync_asked = True
            self.syncer.start(self)
        return 0

    # ------------------------------------------------------------------ damage

    cdef int _fail_reading(self, int error) except -1:
        """Nothing is wrong with the file as far as one knows: it stays, and is tried again."""
        if self.read_error != error:
            self.log.error("DISKQUEUE(%s): cannot read %s - %s", self.name, self.path_of(self.read_number),
                           os.strerror(error))
        self.read_error = error
        self.retry_ns = monotonic_ns() + RETRY_NS
        return 0

    cdef int _missing(self, ReadJob *job) except -1:
        """The read file is not there: the next one it is."""
        cdef int64_t missing = self.read_number, following
        self.read_error = 0
        self._end_write_file()
        following = max(missing + 1, job.following if job.following else min(job.last_number, self.write_number))
        if job.following == 0 and self.write_number - missing > FEW_FILES:
            there = diskmeta.queue_files(self.folder, self.name)
            following = min([number for number in there if missing < number < self.write_number] + [self.write_number])
        if following == missing + 1:
            self.log.error("DISKQUEUE(%s): %s is missing", self.name, self.path_of(missing))
        else:
            self.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", self.name, following - missing,
                           self.path_of(missing))
        self._leave_file()
        self.read_number = following
        self._recount(job, 0)
        if self.depth <= self.buffered() and not self._is_drained():
            self.depth = self.buffered() + 1    # not all were counted; what is there must not be left behind
        return 0

    cdef int _damaged(self, int64_t upto, ReadJob *job) except -1:
        """No record stands between the read position and this offset. Said once a file, with all that follows."""
        if self.damaged_number == self.read_number:
            return 0
        self._end_write_file()
        path = self.path_of(self.read_number)
        self.damaged_number = self.read_number
        self.damaged_linked = diskmeta.keep_bad(path)
        self.log.error("DISKQUEUE(%s): %s is damaged at %d: %d bytes cannot be read, %d intact messages follow; "
                       "it is kept as .bad", self.name, path, self.read_at, job.lost, job.here)
        self._recount(job, job.lost)
        return 0

    cdef int _end_write_file(self) except -1:
        """Nothing may be added to a file that is damaged or missing, as soon as nothing is on its way there."""
        if self.read_number == self.write_number and self.writing is NULL:
            self.window.limit = self.write_at
            self.complete = True
            self.write_number += 1
            self.write_at = 0
            self.new_file = True
        return 0

    cdef int _recount(self, ReadJob *job, int64_t lost) except -1:
        """Sets depth after a damage, from what the thread has counted and what was written since."""
        self.depth = job.here + job.behind + self.committed - job.committed + self.buffered()
        self._count(1)
        return 0

    # ------------------------------------------------------------------ administration

    def empty(self):
        """Drops everything; the next file has a new number."""
        self._forget_all()
        self.read_number = self.write_number
        self.unsynced += 1
        self.syncer.start(self)

    def delete(self):
        """Drops everything, the positions, too."""
        if self.closed:
            return
        self._forget_all()
        self.closed = self.deleted = True
        self.syncer.deleted(self)

    cdef int _forget_all(self) except -1:
        """Nothing waits any more; the next file has a number that none of the old ones has."""
        cdef int64_t number, last = self.write_number
        self.discard(NULL)
        if self.writing is not NULL:
            # It may begin new files; job_done() takes them away.
            last += self.writing.out.records
            self.writing.stale = True
            self.writing = NULL
            self.syncer.stale_writes += 1
        if self.reading is not NULL:
            self.reading.stale = True
            self.reading = NULL
        self._drop_block()
        self._drop_ahead()
        unacked_drop(&self.unacked)
        self.depth = self.read_error = self.write_error = 0
        self.complete = self.waiting = False
        if self.write_number - self.read_number < FEW_FILES:
            numbers = range(self.read_number, self.write_number + 1)
        else:
            # In order: a kill in the midst of their removal leaves no gaps between them.
            numbers = sorted(number for number in diskmeta.queue_files(self.folder, self.name)
                             if self.read_number <= number <= self.write_number)
        self.done_files += [(self.path_of(number), "") for number in numbers]
        self.done_numbers = [-1] * len(self.done_files)
        self.read_number = self.write_number = last + 1
        self.read_at = self.write_at = 0
        self.synced_number, self.synced_at = self.write_number, 0
        return 0

    def close(self):
        """Writes out and closes, when no job is under way; positions are on disk once the syncer has settled.

        Of a full disk it takes what there is. Raises OSError with what is lost.
        """
        if self.closed:
            return
        error = 0
        self.keeps = True       # what does not fit is counted, not taken back: it was acknowledged
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
        """Gives back memory that an idle queue needs not."""
        if self.reading is NULL:
            self._drop_block()
            self._drop_ahead()
            self.want = FIRST_WANT
        if self.out.length == 0:
            out_free(&self.out)
        self._drop_spare()

    def check_rules(self):
        """Has the debug build see whether the rules hold; called between two callbacks of the loop."""
        if self.watcher is not None:
            self.watcher.check_rules()

    def looked(self) -> bool:
        """Whether it was read or written since the last call; for the idle check."""
        cdef bint was = self.active
        self.active = False
        return was

    # ------------------------------------------------------------------ for the syncer

    cdef bint _is_durable(self) noexcept:
        """Whether all that was written has been synced; a sync under way does not count."""
        return self.synced_number == self.write_number and self.synced_at == self.write_at

    def data_to_sync(self) -> list:
        """(path, offset) of the files with data that may not be durable; what stands behind an offset that is not
        negative must be written again, since a sync of it has failed."""
        numbers = list(range(self.synced_number, self.write_number)) + ([self.write_number] if self.write_at else [])
        if not self.rewrite:
            return [(self.path_of(number), -1) for number in numbers]
        return [(self.path_of(number), self.synced_at if number == self.synced_number else 0) for number in numbers]

    def sync_began(self) -> tuple:
        """What a sync that begins now has to do: (data to sync, whether the folder has new files, positions, files to
        take away). Data of its copies comes first: positions must not be ahead of them."""
        cdef Place *oldest = self.unacked.oldest
        cdef DiskQueue copy
        cdef list data = [], done
        cdef Py_ssize_t count = len(self.done_files)
        cdef bint folder = self.new_file
        for copy in self.copies:
            # A sync of its own that is under way may end behind this one, or fail.
            if not copy._is_durable() or copy.rewrite:
                data += copy.data_to_sync()
                folder = folder or copy.new_file or copy.syncing_folder
        data += self.data_to_sync()
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

    @property
    def needs_sync(self) -> bool:
        """Whether positions or data have changed since the last sync began."""
        return self.unsynced > 0 or bool(self.done_files) or not self._is_durable()

    def sync_succeeded(self):
        """The data that was there when the sync began is durable."""
        self.rewrite = self.syncing_folder = False
        if self.synced_number <= self.syncing_number:
            self.synced_number, self.synced_at = self.syncing_number, self.syncing_at

    def sync_failed(self, list done not None):
        """What a failed sync was to do is to be done again, its data written again before: after a failed fsync the
        kernel may call pages clean that never reached the disk."""
        cdef DiskQueue copy
        self.rewrite = self.new_file = True
        self.done_files = done + self.done_files
        self.done_numbers = [-1] * len(done) + self.done_numbers
        self.unsynced += 1
        for copy in self.copies:
            if not copy.rewrite:
                copy.sync_failed([])
                copy.syncer.began(copy)

    # ------------------------------------------------------------------ for Python

    def track(self):
        """done() will be called for each record."""
        self.tracks = True

    def put(self, bytes body not None, bytes message_id not None, timestamp_ns: int, attempts: int = 0):
        """Adds a record to the buffer; message_id has 16 digits."""
        cdef Message *message
        if len(message_id) != 16:
            raise ValueError("a message id has 16 bytes")
        message = message_new(message_id, timestamp_ns, body, <unsigned int> len(body))
        if message is NULL:
            raise MemoryError
        try:
            if self.append(message, attempts, NULL) < 0:
                raise MemoryError
        finally:
            message_unref(message)

    def get(self):
        """The oldest record as (body, message_id, timestamp_ns, attempts), also of the buffer; None where there is
        none."""
        cdef uint16_t attempts
        cdef Message *message = self.pop(&attempts)
        if message is NULL and not self.read_error and self._is_drained():
            message = self._pop_buffer(&attempts)
        if message is NULL:
            return None
        found = (message.body[:message.size], message.id[:16], message.timestamp_ns, attempts)
        message_unref(message)
        return found

    def commit(self) -> int:
        """Writes the buffer, in a queue whose pool has no threads; 0 or errno."""
        self.write_error = 0
        self.begin_write(False)
        return self.write_error

    def rollback(self) -> int:
        """Drops the buffer; how many records."""
        return self.discard(NULL)


cdef void free_write(WriteJob *job, Unacked *unacked) noexcept:
    forget_formers(&job.out, unacked)
    out_free(&job.out)
    free(job)
