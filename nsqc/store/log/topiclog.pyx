"""The log of a topic. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memcpy, memset

import os

from nsqc.store.backlog cimport CommitSchedule
from nsqc.store.clock cimport Clock
from nsqc.store.disk.pool cimport IoPool, Job
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.log.appends cimport files_close
from nsqc.store.log.delays cimport delays_add, delays_from, delays_of
from nsqc.store.log.format cimport DUE_BYTES, DueEntry, due_store
from nsqc.store.log.jobs cimport MORE_MARK, AppendJob, buf_free, buf_room
from nsqc.store.log.logstate cimport file_path, next_appended, wake_readers
from nsqc.store.log.names import new_id
from nsqc.store.log.readers cimport Readers, WaitsForRecords
from nsqc.store.log.readfiles cimport readfiles_close, readfiles_lend, readfiles_return
from nsqc.store.log.reads cimport ReadRecords, run_read_records
from nsqc.store.log.recorder cimport Recorder
from nsqc.store.log.retention cimport drop_passed, retain_segments
from nsqc.store.log.segmenttable import SegmentTable
from nsqc.store.log.segments cimport Segment, segments_add, segments_at, segments_numbered, segments_rank
from nsqc.store.log.syncing cimport sync_work
from nsqc.store.log.unsynced cimport unsynced_ended
from nsqc.store.log.writing cimport finish_entries, finish_write, write_next
from nsqc.store.message cimport Message
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

cdef enum:
    NS_PER_MS = 1000000


@cython.final
@cython.no_gc_clear
cdef class TopicLog(LogState):
    """What a topic was published, in the order of its offsets. Made by the manager."""

    def __init__(self, str name not None, str folder not None, IoPool io not None, syncer, log, Clock clock not None,
                 CommitSchedule schedule not None, opened):
        """opened: what the folder has, as nsqc.store.log.recovery says it."""
        cdef Segment segment
        self.name = name
        self.folder = folder
        self.c_folder = os.fsencode(folder)
        self.io = io
        self.syncer = syncer
        self.log = log
        self.clock = clock
        self.longest_delay_ns = INT64_MAX
        for found in opened.segments:
            memset(&segment, 0, sizeof(segment))
            segment.first, segment.end, segment.bytes, segment.due_bytes, segment.base_ns, segment.last_ns = found[:6]
            segment.time = found[6]
            if segments_add(&self.segments, &segment) < 0:
                raise MemoryError
        self.next = self.visible = opened.next
        self.resume_at = opened.resume_at
        self.ends = opened.ends
        self.tail_first = self.next
        self.unsynced_files.synced = self.segments.items[self.segments.count - 1].first if self.segments.count else 0
        self.recorder = Recorder(folder, io, schedule, syncer, log, self, opened.exists,
                                 opened.id if opened.exists else new_id(), opened.journals,
                                 opened.first_journal, opened.next_journal, opened.next_number, opened.journal_bytes)

    # ------------------------------------------------------------------ appending

    cdef int append(self, const char *c_id, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms,
                    bint more) noexcept:
        cdef int64_t length = <int64_t> HEAD_BYTES + size
        cdef DueEntry due
        cdef char *c_to
        if self.out.c_data is NULL and self.spare.c_data is not NULL:
            self.out = self.spare
            memset(&self.spare, 0, sizeof(self.spare))
        if buf_room(&self.out, length) < 0:
            return -1
        if defer_ms:
            if buf_room(&self.due, DUE_BYTES) < 0:
                return -1
            due.offset = self.appended()
            due.due_ns = wall_ns + <int64_t> defer_ms * NS_PER_MS
            due.delay_ms = defer_ms
            due_store(self.due.c_data + self.due.length, &due)
            self.due.length += DUE_BYTES
        c_to = self.out.c_data + self.out.length
        store_i32(c_to, <int> (size + (HEAD_BYTES - SIZE_BYTES)))
        store_i64(c_to + RECORD_TIMESTAMP_AT, wall_ns)
        store_u16(c_to + RECORD_ATTEMPTS_AT, MORE_MARK if more else 0)
        memcpy(c_to + RECORD_ID_AT, c_id, MESSAGE_ID_BYTES)
        memcpy(c_to + HEAD_BYTES, c_body, size)
        self.out.length += length
        self.out.records += 1
        self.commit.unwritten += length
        self.commit.schedule.add(self.commit)
        return 0

    cdef int append_message(self, Message *message, bint more) noexcept:
        return self.append(message.id, message.timestamp_ns, message.body, message.size, 0, more)

    cdef int64_t appended(self) noexcept:
        """The offset of the next record that is added to the buffer."""
        return next_appended(self)

    cdef int stage(self, int64_t length, int64_t records, LogBuf *to) noexcept:
        cdef int64_t size = self.out.length - length
        if buf_room(to, size) < 0:
            return -1
        memcpy(to.c_data + to.length, self.out.c_data + length, <size_t> size)
        to.length += size
        to.records += self.out.records - records
        self.commit.unwritten -= size
        self.out.length = length
        self.out.records = records
        return 0

    cdef void take_back(self, int64_t length, int64_t records) noexcept:
        self.commit.unwritten -= self.out.length - length
        self.out.length = length
        self.out.records = records

    cdef int unstage(self, LogBuf *batch) noexcept:
        if buf_room(&self.out, batch.length) < 0:
            return -1
        memcpy(self.out.c_data + self.out.length, batch.c_data, <size_t> batch.length)
        self.out.length += batch.length
        self.out.records += batch.records
        self.commit.unwritten += batch.length
        self.commit.schedule.add(self.commit)
        buf_free(batch)
        return 0

    cdef int64_t unwritten_records(self) noexcept:
        return self.out.records

    cdef bint shares_syncs(self) noexcept:
        return self.syncs

    cdef bint begin_write(self) noexcept:
        return write_next(self)

    cdef void job_done(self, Job *job) noexcept:
        finish_write(self, <AppendJob *> job)

    cdef void end_write(self) noexcept:
        finish_entries(self)

    cdef void hold(self, int64_t at) noexcept:
        self.held = True
        self.visible = at

    cdef void unhold(self) noexcept:
        self.held = False
        self.visible = self.next

    # ------------------------------------------------------------------ deferred messages

    def restore_delays(self, bytes entries not None):
        """Due times, as a .due file has them; damaged ones and those behind the end count for nothing."""
        self.clock.refresh()
        delays_add(&self.delays, entries, len(entries), self.next, self.longest_delay_ns, self.clock)

    cdef int64_t delay_of(self, int64_t offset) noexcept:
        return delays_of(&self.delays, offset, self.clock.monotonic) if self.delays.count else 0

    cdef int64_t delayed_from(self, int64_t offset) noexcept:
        return delays_from(&self.delays, offset, self.clock.monotonic) if self.delays.count else 0

    # ------------------------------------------------------------------ readers

    def when_readable(self, int64_t offset, call):
        """Calls call() once there is a record at this offset, at once if there is; returns what cancels that."""
        if self.next > offset or self.closed:
            call()
            return WaitsForRecords.__new__(WaitsForRecords)
        if self.readers is None:
            self.readers = Readers(self.recorder.schedule.loop)
        return self.readers.add(offset, call)

    cdef void read_now(self, ReadRecords *job) noexcept:
        readfiles_lend(&self.reading, job)
        run_read_records(&job.job)
        self.active = True
        if readfiles_return(&self.reading, job, self.closed):
            self.syncer.uses(self)      # it says when nobody reads any more

    cdef int64_t first_offset(self) noexcept:
        return self.segments.items[0].first if self.segments.count else self.next

    @property
    def first(self) -> int:
        """The first offset there is; following, if there is none."""
        return self.segments.items[0].first if self.segments.count else self.following

    @property
    def following(self) -> int:
        """The next record has this offset at the least. Never falls; next does, where a power failure takes records."""
        return max(self.next, self.resume_at)

    @property
    def bytes(self) -> int:
        """Of all records."""
        return self.segments.bytes

    @property
    def missing(self) -> int:
        """Messages that are gone between segments."""
        return self.segments.missing

    @property
    def segment_numbers(self) -> tuple:
        """The number of the oldest segment, and the one behind the newest. A segment keeps its number."""
        return self.segments.dropped, self.segments.dropped + self.segments.count

    def numbered(self, int64_t number, int64_t most) -> list:
        """The segment of a number and those behind it, at most so many of them: (first offset, offset behind the last,
        bytes of records). None, if the first is gone."""
        return segments_numbered(&self.segments, number, most)

    @property
    def table(self):
        """The segments, oldest first, as numbered() has them; see SegmentTable. Costs the same with any number."""
        return SegmentTable(self)

    def segment_at(self, int64_t offset):
        """As numbered(), of the segment with an offset, or of the first one behind it; None: there is none yet."""
        return segments_at(&self.segments, offset)

    @property
    def id(self):
        """Which log this is, as 16 hexadecimal digits: another one than that of a topic that had this name before.
        None: it is not written yet, because there is nothing in the log, or it could not be."""
        return f"{self.recorder.id:016x}" if self.recorder.exists and self.recorder.id else None

    def rank(self, int64_t offset) -> int:
        """Records before an offset: the difference of two is what lies between them."""
        return segments_rank(&self.segments, offset)

    # ------------------------------------------------------------------ retention

    def retain(self, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops) -> int:
        """Removes segments that nobody needs: how many. If they are many, the others are left to the next call.

        needed: the first offset that a channel needs. Segments before that go if their last record is older than
        retain_ns and the others have retain_bytes. drops: those that are too many or too old go, needed or not.
        """
        return retain_segments(self, needed, retain_ns, retain_bytes, drops)

    def drop_delays(self) -> None:
        """Removes due times that have all passed; not those of the last segment, which may get more."""
        drop_passed(self)

    # ------------------------------------------------------------------ for the syncer

    @property
    def meta_path(self) -> str:
        """A path in the folder; a log has no positions file."""
        return f"{self.folder}/positions"

    @property
    def rests(self) -> bool:
        """Whether it rests after a sync."""
        return True

    @property
    def unsynced(self) -> int:
        """Records written since the last sync began, by appends that do not sync."""
        return self.unsynced_records

    @property
    def needs_sync(self) -> bool:
        """Whether anything was written that may not be on disk."""
        return self.unsynced_files.behind or self.recorder.at > 0

    def sync_from(self, int64_t offset):
        """An earlier run has been killed: what it has written in segments from this offset on may not be on disk."""
        self.unsynced_files.synced = offset
        self.unsynced_files.behind = True
        self.recorder.wrote()

    def sync_began(self) -> tuple:
        """What a sync that begins now has to do; see nsqc.store.disk.syncer.Work."""
        return sync_work(self)

    def sync_succeeded(self):
        """The data there was when the sync began is durable."""
        unsynced_ended(&self.unsynced_files, True)
        self.recorder.names_synced(self.recorder.syncing_names)

    def sync_failed(self, list done not None):
        """It has to be written again before the next sync: the kernel may consider it clean."""
        unsynced_ended(&self.unsynced_files, False)
        self.unsynced_records += 1

    def was_active(self) -> bool:
        """Whether anything was written since the last call; for the idle check."""
        cdef bint was = self.active or self.recorder.active
        self.active = self.recorder.active = False
        return was

    def release(self):
        """Closes files and frees memory that an idle log does not need."""
        if self.writing is NULL and self.ending is NULL:
            files_close(&self.files)
        readfiles_close(&self.reading)
        self.recorder.close_file()
        if self.out.length == 0:
            buf_free(&self.out)
        if self.due.length == 0:
            buf_free(&self.due)
        buf_free(&self.spare)
        buf_free(&self.tail)
        self.tail_first = self.next
        if self.owner is not None:
            self.owner.on_idle()

    # ------------------------------------------------------------------ the end

    cdef void let_go(self) noexcept:
        self.owner = None

    def close(self):
        """For a stop, while no job is under way: writes the journal; what was published is written already."""
        if self.closed:
            return
        self.end_write()
        self.closed = True
        self.owner = None
        self.recorder.close()
        files_close(&self.files)
        readfiles_close(&self.reading)
        wake_readers(self)
        self.syncer.finish(self)

    def delete(self):
        """Forgets everything, and removes the files."""
        if self.closed:
            return
        self.end_write()
        self.closed = True
        self.owner = None
        self.recorder.forget()
        self.syncer.forget(self)
        if self.readers is not None:
            self.readers.wake(INT64_MAX, False)
        buf_free(&self.spare)
        buf_free(&self.tail)
        self.tail_first = self.next
        files_close(&self.files)
        readfiles_close(&self.reading)

    @property
    def needs_attention(self) -> bool:
        """Whether retain() or drop_delays() may have something to do later."""
        return self.segments.count > 1 or self.delays.count > 0

    @property
    def write_path(self) -> str:
        """The segment that is written to."""
        return file_path(self, self.segments.items[self.segments.count - 1].first if self.segments.count else 0, "dat")

    def recorded_again(self):
        """The journal, which could not be written for a while, can be."""
        if self.owner is not None:
            self.owner.on_appended(0)       # channels had stopped delivering

    @property
    def busy(self) -> bool:
        """Whether a thread works on its files."""
        return self.writing is not NULL or self.ending is not NULL or self.recorder.running or self.recorder.compacting

    @property
    def errno(self) -> int:
        """Of the last write of records or of the journal; 0: both succeeded."""
        return self.write_error or self.recorder.error
