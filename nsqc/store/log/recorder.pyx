"""Writes the journal of a log. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport close
from cpython.bytes cimport PyBytes_AS_STRING

import os

from nsqc.store.disk.pool cimport SHORT_BYTES, Job
from nsqc.store.disk.syscalls cimport io_write_ready
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.journalfile cimport run_journal
from nsqc.store.log.compact cimport CompactJob, run_compact
from nsqc.store.log.openfiles cimport stays_open, taken_back, was_closed
from nsqc.store.log.ops cimport (FRAME_BYTES, MOST_OP_BYTES, OP_DROP, OP_FIN, OP_NAME, OP_RESET, OP_SKIP,
                                 SECTION_BYTES, put_cursor, put_range, put_req, put_varint)
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport store_i32, store_i64

cdef enum:
    LEAST_COMPACTED = 4194304   # bytes of a journal; smaller ones are not worth a snapshot
    MANY_JOURNALS = 16          # each start begins one
    KEPT_OPS = 65536            # memory for operations that a quiet channel keeps

cdef double RETRY_S = 0.25


cdef class Journaled(JobOwner):
    """What a channel does, as operations of the journal."""

    def __dealloc__(self):
        buffer_free(&self.ops)

    cdef void complete(self) noexcept:
        pass

    cdef int64_t needed_from(self) noexcept:
        return 0

    cdef void mark_dirty(self) noexcept:
        if not self.dirty and self.number >= 0 and not self.recorder.forgotten:
            self.dirty = True
            self.recorder.dirty.append(self)
            self.recorder.schedule.add(self.recorder)

    cdef char *_room(self, int64_t need, int64_t offset) noexcept:
        """Room in the buffer, or NULL. An operation that is lost for want of memory costs a delivery after a kill."""
        if self.number < 0 or buffer_room(&self.ops, need) < 0:
            return NULL
        if self.ops.length == 0:
            self.base = self.last = offset
        return self.ops.c_data + self.ops.length

    cdef void add_fin(self, int64_t offset) noexcept:
        if self.fin_count and offset == self.fin_first + self.fin_count:
            self.fin_count += 1
            return
        self._flush_fins()
        self.fin_first = offset
        self.fin_count = 1
        self.mark_dirty()

    cdef void add_fins(self, int64_t first, int64_t count) noexcept:
        self._flush_fins()
        self.fin_first = first
        self.fin_count = count
        self.mark_dirty()

    cdef void _flush_fins(self) noexcept:
        cdef char *c_to
        if self.fin_count == 0:
            return
        c_to = self._room(MOST_OP_BYTES, self.fin_first)
        if c_to is not NULL:
            self.ops.length = put_range(c_to, OP_FIN, self.fin_first, self.fin_count, &self.last) - self.ops.c_data
        self.fin_count = 0

    cdef void add_skip(self, int64_t first, int64_t count) noexcept:
        cdef char *c_to
        self._flush_fins()
        c_to = self._room(MOST_OP_BYTES, first)
        if c_to is not NULL:
            self.ops.length = put_range(c_to, OP_SKIP, first, count, &self.last) - self.ops.c_data
        self.mark_dirty()

    cdef void add_req(self, int64_t offset, uint32_t attempts, int64_t due_ns) noexcept:
        cdef char *c_to
        self._flush_fins()
        c_to = self._room(MOST_OP_BYTES, offset)
        if c_to is not NULL:
            self.ops.length = put_req(c_to, offset, attempts, due_ns, &self.last) - self.ops.c_data
        self.mark_dirty()

    cdef void add_cursor(self, int kind, int64_t cursor) noexcept:
        cdef char *c_to
        if kind == OP_RESET:
            self.fin_count = 0
            self.recorder.twice = True
        self._flush_fins()
        c_to = self._room(MOST_OP_BYTES, cursor)
        if c_to is not NULL:
            self.ops.length = put_cursor(c_to, kind, cursor, &self.last) - self.ops.c_data
        self.mark_dirty()

    cdef void add_name(self, bytes name) noexcept:
        cdef char *c_to = self._room(MOST_OP_BYTES + len(name), 0)
        if c_to is not NULL:
            c_to[0] = OP_NAME
            c_to = put_varint(c_to + 1, <uint64_t> len(name))
            memcpy(c_to, PyBytes_AS_STRING(name), len(name))
            self.ops.length = c_to + len(name) - self.ops.c_data
        self.mark_dirty()

    cdef void add_drop(self) noexcept:
        cdef char *c_to
        self.fin_count = 0
        c_to = self._room(MOST_OP_BYTES, self.last)
        if c_to is not NULL:
            c_to[0] = OP_DROP
            self.ops.length += 1
        self.mark_dirty()


@cython.final
@cython.no_gc_clear
cdef class Recorder(Scheduled):
    """The journal of one log."""

    def __init__(self, str folder not None, IoPool io not None, CommitSchedule schedule not None, syncer, log, synced,
                 bint exists, list numbers not None, int64_t first_number, int64_t number,
                 int64_t next_number, int64_t older):
        """numbers: journals that exist and are needed. first_number, number: the oldest of them, and the one that is
        written next, which does not exist. older: bytes of the journals and the snapshot before that."""
        self.folder = folder
        self.c_folder = os.fsencode(folder)
        self.io = io
        self.schedule = schedule
        self.syncer = syncer
        self.log = log
        self.synced = synced
        self.exists = exists
        self.names = 1
        self.numbers = numbers
        self.first_number = first_number
        self.number = self.began_with = number
        self.next_number = next_number
        self.older = older
        self.fd = -1
        self.dirty = []
        self.waiting = []
        self.under_way = []

    def __dealloc__(self):
        self.close_file()
        buffer_free(&self.kept)

    cdef void close_file(self) noexcept:
        if self.fd >= 0 and not self.running:
            self._close_now()

    cdef void _close_now(self) noexcept:
        close(self.fd)
        self.fd = -1
        was_closed(self.stays_open)
        self.stays_open = False

    cdef bint _gather(self) noexcept:
        """Puts the operations of all channels behind the frames that are kept, as one more frame."""
        cdef Journaled source
        cdef int64_t need = 0, begin
        cdef list dirty = self.dirty
        cdef char *c_to
        for source in dirty:
            source.complete()
            source._flush_fins()
            if source.ops.length:
                need += SECTION_BYTES + source.ops.length
        if need == 0:
            for source in dirty:
                source.dirty = False
            self.dirty = []
            return self.kept.length > 0
        if buffer_room(&self.kept, 2 * (FRAME_BYTES + need)) < 0:
            return self.kept.length > 0
        self.dirty = []
        begin = self.kept.length
        c_to = self.kept.c_data + begin + FRAME_BYTES
        for source in dirty:
            source.dirty = False
            if source.ops.length == 0:
                continue
            store_i32(c_to, <int> source.number)
            store_i32(c_to + 4, <int> source.ops.length)
            store_i64(c_to + 8, source.base)
            memcpy(c_to + SECTION_BYTES, source.ops.c_data, <size_t> source.ops.length)
            c_to += SECTION_BYTES + source.ops.length
            source.ops.length = 0
            if source.ops.room > KEPT_OPS:
                buffer_free(&source.ops)
        c_to = self.kept.c_data + begin
        store_i32(c_to, <int> need)
        store_i32(c_to + 4, <int> crc32c(<const unsigned char *> c_to + FRAME_BYTES, need))
        self.kept.length += FRAME_BYTES + need
        if self.twice:
            memcpy(c_to + FRAME_BYTES + need, c_to, <size_t> (FRAME_BYTES + need))
            self.kept.length += FRAME_BYTES + need
            self.twice = False
        return True

    cdef void begin(self) noexcept:
        if self.running or self.forgotten:
            return      # job_done() asks for the next one
        if not self._gather():
            return
        self.under_way, self.waiting = self.under_way + self.waiting, []
        memset(&self.job, 0, sizeof(self.job))
        self.job.job.run = run_journal
        self.job.job.bytes = self.kept.length
        # A kill must cost no more than what was done in the loop iteration under way.
        self.job.job.is_short = self.job.job.is_urgent = self.kept.length <= SHORT_BYTES and (
            self.fd < 0 or io_write_ready(self.fd, self.at))
        self.job.c_folder = PyBytes_AS_STRING(self.c_folder)
        self.job.makes_folder = not self.exists
        self.job.number = self.number
        self.job.at = self.at
        self.job.fd = self.fd
        self.job.c_data = self.kept.c_data
        self.job.length = self.kept.length
        memset(&self.kept, 0, sizeof(self.kept))
        self.running = True
        self.io.submit(&self.job.job, self)

    cdef void job_done(self, Job *job) noexcept:
        cdef Buffer written
        if job.run == run_compact:
            self._compacted(<CompactJob *> job)
            return
        self.running = False
        self.fd = self.job.fd
        if self.job.waits:
            taken_back(1)
        memset(&written, 0, sizeof(written))
        written.c_data = self.job.c_data
        written.room = written.length = self.job.length
        if self.job.error:
            self._failed(&written)
            return
        self.exists = True
        if self.at == 0:
            self.names += 1
        self.at = self.job.at
        buffer_free(&written)
        if self.fd >= 0:
            if not self.stays_open:
                self.stays_open = stays_open(1)
            if self.closed or not self.stays_open:
                self._close_now()
        if self.closed:
            self._call_all()
            return
        self.active = True
        if self.error:
            self.error = 0
            self.syncer.failing.pop(self.folder, None)
            self.log.info("LOG(%s): the journal can be written again", self.folder)
            self.synced.recorded_again()
        self._wrote()

    cdef void _failed(self, Buffer *written) noexcept:
        """Keeps the frames; they are tried again in a moment."""
        if self.job.error != self.error:
            self.log.error("LOG(%s): failed to write the journal - %s", self.folder, os.strerror(self.job.error))
        self.error = self.job.error
        if not self.forgotten:
            self.syncer.failing[self.folder] = (
                f"failed to write the journal of {self.folder} - {os.strerror(self.error)}")
        if self.fd >= 0:
            self._close_now()
        buffer_free(&self.kept)
        self.kept = written[0]
        self._call_waiting()
        if self.closed:
            self._call_all()
        elif self.schedule.loop is not None:
            self.schedule.loop.call_later(RETRY_S, self.retry)

    cdef void _wrote(self) noexcept:
        self.wrote()
        self._call_waiting()
        if self.dirty:
            self.schedule.add(self)
        elif not self.compacting and not self.closed and (
                self.at > max(<int64_t> LEAST_COMPACTED, 2 * self.older)
                or self.number - max(self.first_number, self.failed_number) >= MANY_JOURNALS):
            self._compact()

    cdef void wrote(self) noexcept:
        if not self.told and not self.closed:
            self.told = True
            self.syncer.began(self.synced)

    cdef void names_synced(self, int64_t names) noexcept:
        self.synced_names = max(self.synced_names, names)
        self.rooted = True

    cdef void _call_waiting(self) noexcept:
        cdef list ended
        if self.under_way:
            ended, self.under_way = self.under_way, []
            for call in ended:
                call()

    cdef void _call_all(self) noexcept:
        """Nothing more is written: whoever waits for that has waited long enough."""
        self.under_way, self.waiting = self.under_way + self.waiting, []
        self._call_waiting()

    cdef void _compact(self) noexcept:
        """Begins the next journal, and has a thread sum up the older ones."""
        cdef CompactJob *job = <CompactJob *> malloc(sizeof(CompactJob))
        if job is NULL:
            return
        memset(job, 0, sizeof(job[0]))
        self.close_file()
        self.number += 1
        self.at = 0
        self.compacting = True
        job.job.run = run_compact
        job.c_folder = PyBytes_AS_STRING(self.c_folder)
        job.upto = self.number
        self.io.submit(&job.job, self)

    cdef void _compacted(self, CompactJob *job) noexcept:
        self.compacting = False
        if job.error:
            self.log.error("LOG(%s): failed to compact the journal - %s", self.folder, os.strerror(job.error))
            # Not before there is as much again.
            self.older = self.older + self.at
            self.failed_number = self.number
        else:
            self.older = job.bytes
            self.first_number = job.upto
            self.numbers = []
        free(job)

    def retry(self):
        """Writes the frames that could not be written."""
        if not self.closed:
            self.schedule.add(self)

    def when_written(self, call):
        """Calls call() when everything recorded so far is in the journal, or could not be written."""
        if self.running and (self.closed or not self.dirty):
            self.under_way.append(call)
        elif not self.closed and (self.dirty or self.kept.length):
            self.waiting.append(call)
        else:
            call()

    @property
    def refused(self) -> int:
        """Why what was recorded is not in the journal: an errno. 0: it is, or the log is deleted."""
        return 0 if self.forgotten else self.error

    @property
    def path(self) -> str:
        """The journal that is written."""
        return f"{self.folder}/cursors.{self.number:06d}.journal"

    @property
    def paths(self) -> list:
        """All journals that are needed."""
        numbers = [*self.numbers, *range(max(self.began_with, self.first_number), self.number + 1)]
        return [f"{self.folder}/cursors.{number:06d}.journal" for number in numbers]

    cdef void forget(self) noexcept:
        """The log is deleted: what is left is not written."""
        self.closed = self.forgotten = True
        self.dirty = []         # they know this, like the log: neither would ever be freed
        self.synced = None
        self.syncer.failing.pop(self.folder, None)
        if not self.running:
            self._call_all()

    def close(self):
        """For a stop: writes what is left, if it can be written."""
        self.closed = True
        self.synced = None
        if not self.running and (self.dirty or self.kept.length):
            self.begin()
        self.close_file()
