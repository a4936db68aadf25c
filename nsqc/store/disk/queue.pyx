"""A queue in files: batched writes, block reads, a new file when one is full. See docs/ondisk.md."""

cimport cython
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t

import os

from nsqc.store.disk import recovery
from nsqc.store.disk.filejobs cimport FEW_FILES, ReadJob, WriteJob, run_write
from nsqc.store.disk.index import queue_files
from nsqc.store.disk.names cimport MAX_NUMBER_BYTES, PATH_BYTES
from nsqc.store.disk.names import prefix_of
from nsqc.store.disk.pool cimport IoPool, Job
from nsqc.store.disk.reading cimport FIRST_WANT, begin_read, finish_read, next_block
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_TIMESTAMP_AT, record_load
from nsqc.store.disk.state cimport (buffered_records, count_operations, drop_ahead, drop_block, is_drained,
                                    leave_file)
from nsqc.store.disk.unacked cimport unacked_add, unacked_done, unacked_drop
from nsqc.store.disk.writebuf cimport out_append, out_free, spare_free
from nsqc.store.disk.writing cimport discard_buffers, finish_write, pop_buffer, write_next
from nsqc.store.message cimport message_unref
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16


cdef enum:
    DRAINED_BYTES = 1048576     # a smaller file is kept


@cython.final
@cython.no_gc_clear
cdef class DiskQueue(QueueState):
    """The disk queue of one topic or channel. Created by the manager. Raises OSError if it cannot be opened."""

    def __init__(self, str name not None, str folder not None, int64_t max_bytes_per_file, int64_t max_msg_size,
                 IoPool io not None, syncer, log, files=None, first=None):
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
