"""Writes the journal of a log. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING

import os

from nsqc.store.disk.pool cimport SHORT_BYTES, Job
from nsqc.store.disk.syscalls cimport io_write_ready
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.frame cimport FRAME_ALIGN
from nsqc.store.log.journalfile cimport OPS_AT, files_add, files_free_number
from nsqc.store.log.journaljobs cimport compaction_free, run_compact, run_journal
from nsqc.store.log.openfiles cimport close_counted
from nsqc.store.log.ops cimport OP_END_AT, OP_FIN, OP_NAME, OP_RESET, Op, op_length, op_store
from nsqc.wire.hton cimport store_i64

from nsqc.store.log.names import REMOVED

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
    def paths(self) -> list:
        """All files in use."""
        return [f"{self.folder}/cursors.{number:06d}" for number in self.numbers]

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

    def when_written(self, call):
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
        self.synced = None
        self.syncer.failing.pop(self.folder, None)
        if not self.running:
            self._call_all()

    def close(self):
        """For a stop: writes the remaining operations, if the disk accepts them."""
        self.closed = True
        self.synced = None
        self.run()
        self.close_file()
