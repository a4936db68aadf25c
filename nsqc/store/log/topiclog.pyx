"""The log of a topic. See the .pxd."""

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset
from posix.unistd cimport close
from cpython.bytes cimport PyBytes_AS_STRING

import os
import time

from nsqc.store.disk.pool cimport Job
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.log.format cimport DUE_BYTES, TIME_SHIFT, DueEntry, due_load, due_store
from nsqc.store.log.jobs cimport MORE_MARK, Piece, buf_free, buf_room, run_append
from nsqc.store.log.names import new_id
from nsqc.store.log.openfiles cimport stays_open, was_closed
from nsqc.store.log.segments cimport (Segment, segments_add, segments_drop, segments_find, segments_free,
                                      segments_rank)
from nsqc.store.message cimport Message
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

cdef enum:
    SHORT_BYTES = 131072        # a write of at most so much is short if the page cache takes it
    MOST_SPARE = 1048576        # memory that is kept for the next buffer
    FIRST_DELAYS = 64
    NS_PER_MS = 1000000
    MOST_WOKEN = 64             # readers in a loop iteration: each has its answer made then


cdef class WaitsForRecords:
    """Calls a function once a log has a record at an offset, unless it is cancelled."""

    cdef TopicLog log
    cdef int64_t offset
    cdef object call

    def cancel(self):
        """The function is not called."""
        self.call = None
        self.log.waiting.pop(self, None)    # a log may rest for long, and be asked again and again


@cython.final
@cython.no_gc_clear     # __dealloc__ closes files
cdef class TopicLog(CommitLog):
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
        self.dat = self.idx = -1
        self.waiting = {}
        self.woken = []
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
        self.synced = self.segments.items[self.segments.count - 1].first if self.segments.count else 0
        self.recorder = Recorder(folder, io, schedule, syncer, log, self, opened.exists,
                                 opened.id if opened.exists else new_id(), opened.journals,
                                 opened.first_journal, opened.next_journal, opened.next_number, opened.journal_bytes)

    def __dealloc__(self):
        close_files(self)
        segments_free(&self.segments)
        buf_free(&self.out)
        buf_free(&self.due)
        buf_free(&self.spare)
        buf_free(&self.tail)
        free(self.delays.items)

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
        cdef int64_t begin = self.next
        if self.writing is not NULL:
            return self.writing.offset + self.writing.out.records + self.out.records
        return max(begin, self.resume_at) + self.out.records

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

    cdef bint begin_write(self) noexcept:
        cdef AppendJob *job = <AppendJob *> calloc(1, sizeof(AppendJob))
        cdef Segment *last
        if job is NULL:
            self.write_error = ENOMEM
            return False
        job.job.run = run_append
        job.c_folder = PyBytes_AS_STRING(self.c_folder)
        job.offset = self.appended() - self.out.records
        job.out = self.out
        job.due = self.due
        memset(&self.out, 0, sizeof(self.out))
        memset(&self.due, 0, sizeof(self.due))
        job.syncs = self.syncs
        job.max_file = self.max_file
        job.makes_folder = not self.recorder.exists
        job.syncs_parent = not self.recorder.rooted
        job.syncs_names = self.recorder.synced_names < self.recorder.names
        job.names = self.recorder.names
        job.id = self.recorder.id
        job.dat = job.idx = -1
        if self.segments.count == 0 or self.ends:
            job.fresh = True
            job.last.first = job.offset
            if self.segments.count:
                last = &self.segments.items[self.segments.count - 1]
                job.least_ns = last.base_ns + ((<int64_t> last.time) << TIME_SHIFT)
            close_files(self)
        else:
            last = &self.segments.items[self.segments.count - 1]
            job.last.first = last.first
            job.last.records = last.end - last.first
            job.last.bytes = last.bytes
            job.last.due_bytes = last.due_bytes
            job.last.base_ns = last.base_ns
            job.last.time = last.time
            hand_over(self, job)
        job.job.bytes = job.out.length
        # Publishers wait for it: handing it to a thread and back would take longer than the write.
        job.job.is_short = job.job.is_urgent = job.out.length <= SHORT_BYTES and not job.syncs and not job.fresh
        self.writing = job
        self.io.submit(&job.job, self)
        return True

    cdef void job_done(self, Job *c_job) noexcept:
        cdef AppendJob *job = <AppendJob *> c_job
        cdef int64_t records = job.out.records, body_bytes
        cdef int error = job.error, before = self.write_error
        self.writing = NULL
        self.write_error = error
        if error == 0:
            try:
                self._take_pieces(job)
            except Exception as failure:
                self.log.error("LOG(%s): after a write - %r", self.name, failure)
            keep_files(self, job)
            self._add_delays(&job.due)
            self._take_tail(job)
        else:
            if job.spoilt:
                self.ends = True
            close_job_files(job)
            rebase_due(&self.due, records)
        body_bytes = job.out.length - records * HEAD_BYTES
        free_append(job)
        if self.owner is not None:
            if error:
                self.owner.on_write_failed(error, records, body_bytes)
            elif before:
                self.owner.on_write_healed()
        if error == 0 and self.owner is not None:
            self.owner.on_appended(records)
            self._wake()
        self.commit.one_ended(error)        # answers publishers; consumers come first, who wait longer

    cdef int _take_pieces(self, AppendJob *job) except -1:
        """Enters what was written into the table of segments."""
        cdef Segment segment
        cdef Segment *last
        cdef Piece *piece
        cdef int64_t index
        self.recorder.exists = True
        self.recorder.names += job.made_names
        if job.synced_names:
            self.recorder.names_synced(job.names)
        for index in range(job.count):
            piece = &job.pieces[index]
            if index == 0 and not job.fresh:
                last = &self.segments.items[self.segments.count - 1]
                self.segments.bytes += piece.bytes - last.bytes
            else:
                memset(&segment, 0, sizeof(segment))
                segment.first = segment.end = piece.first
                if segments_add(&self.segments, &segment) < 0:
                    raise MemoryError
                last = &self.segments.items[self.segments.count - 1]
                self.segments.bytes += piece.bytes
            last.end = piece.first + piece.records
            last.bytes = piece.bytes
            last.due_bytes = piece.due_bytes
            last.base_ns = piece.base_ns
            last.time = piece.time
            last.last_ns = self.clock.wall
        self.ends = False
        self.active = True
        self.recorder.wrote()
        if not self.syncs:
            self.unsynced += job.out.records
        if self.unsynced >= self.syncer.every:
            self.syncer.start_rested(self)
        return 0

    cdef void _take_tail(self, AppendJob *job) noexcept:
        """What was written last can be read from memory."""
        if 0 < self.tail.room <= MOST_SPARE and self.spare.c_data is NULL:
            self.spare = self.tail
            self.spare.length = self.spare.records = 0
            memset(&self.tail, 0, sizeof(self.tail))
        buf_free(&self.tail)
        self.tail_first = job.offset
        self.tail_serial += 1
        self.next = self.resume_at = job.offset + job.out.records
        if not self.held:
            self.visible = self.next
        self.tail = job.out
        memset(&job.out, 0, sizeof(job.out))

    cdef void hold(self, int64_t at) noexcept:
        self.held = True
        self.visible = at

    cdef void unhold(self) noexcept:
        self.held = False
        self.visible = self.next

    # ------------------------------------------------------------------ deferred messages

    cdef void _add_delays(self, LogBuf *due) noexcept:
        cdef int64_t at = 0
        cdef DueEntry entry
        while at < due.length:
            if due_load(due.c_data + at, &entry):
                add_delay(self, &entry)
            at += DUE_BYTES

    def restore_delays(self, bytes entries not None):
        """Due times, as a .due file has them; damaged ones and those behind the end count for nothing."""
        cdef int64_t at = 0
        cdef const char *c_from = entries
        cdef DueEntry entry
        self.clock.refresh()
        while at + DUE_BYTES <= len(entries):
            if due_load(c_from + at, &entry) and entry.offset < self.next and entry.due_ns > self.clock.wall:
                add_delay(self, &entry)
            at += DUE_BYTES

    cdef int64_t delay_of(self, int64_t offset) noexcept:
        cdef int64_t index
        if self.delays.count == 0:
            return 0
        drop_due(&self.delays, self.clock.monotonic)
        index = find_delay(&self.delays, offset)
        if index == self.delays.first + self.delays.count or self.delays.items[index].offset != offset:
            return 0
        return self.delays.items[index].due_ns

    cdef int64_t delayed_from(self, int64_t offset) noexcept:
        cdef int64_t index, count = 0
        if self.delays.count == 0:
            return 0
        drop_due(&self.delays, self.clock.monotonic)
        for index in range(find_delay(&self.delays, offset), self.delays.first + self.delays.count):
            if self.delays.items[index].due_ns > self.clock.monotonic:
                count += 1
        return count

    # ------------------------------------------------------------------ readers

    def when_readable(self, int64_t offset, call):
        """Calls call() once there is a record at this offset, at once if there is; returns what cancels that."""
        cdef WaitsForRecords waits = WaitsForRecords.__new__(WaitsForRecords)
        waits.log = self
        waits.offset = offset
        waits.call = call
        if self.next > offset or self.closed:
            call()
        else:
            self.waiting[waits] = None
        return waits

    cdef void _wake(self) noexcept:
        cdef WaitsForRecords waits
        cdef bint scheduled = len(self.woken) > 0
        if self.waiting:
            for waits in list(self.waiting):
                if waits.offset < self.next or self.closed:
                    self.woken.append(waits)
                    del self.waiting[waits]
        if self.woken and (self.closed or not scheduled):
            self._wake_some()

    def _wake_some(self):
        """Calls those that have waited longest; the others follow in the next loop iterations."""
        cdef WaitsForRecords waits
        cdef list woken = self.woken
        cdef object loop = self.recorder.schedule.loop
        if loop is None or self.closed:
            self.woken = []
        else:
            woken, self.woken = woken[:MOST_WOKEN], woken[MOST_WOKEN:]
        for waits in woken:
            if waits.call is not None:
                waits.call()
        if self.woken:
            loop.call_soon(self._wake_some)

    cdef int64_t first_offset(self) noexcept:
        return self.segments.items[0].first if self.segments.count else self.next

    @property
    def first(self) -> int:
        """The first offset there is; next, if there is none."""
        return self.first_offset()

    @property
    def bytes(self) -> int:
        """Of all records."""
        return self.segments.bytes

    @property
    def table(self) -> list:
        """The segments, oldest first: (first offset, offset behind the last, bytes of records)."""
        cdef int64_t index
        return [(self.segments.items[index].first, self.segments.items[index].end, self.segments.items[index].bytes)
                for index in range(self.segments.count)]

    def segment_at(self, int64_t offset):
        """What `table` has of the segment with an offset, or of the first one behind it; None: there is none yet."""
        cdef int64_t index
        cdef Segment *segment
        for index in range(max(segments_find(&self.segments, offset), 0), self.segments.count):
            segment = &self.segments.items[index]
            if segment.first < segment.end and offset < segment.end:
                return segment.first, segment.end, segment.bytes
        return None

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
        """Removes segments that nobody needs: how many.

        needed: the first offset that a channel needs. Segments before that go if their last record is older than
        retain_ns and the others have retain_bytes. drops: those that are too many or too old go, needed or not.
        """
        cdef int64_t gone = 0, left = self.segments.bytes, index, size
        cdef int64_t now = time.time_ns()
        cdef Segment *segment
        cdef bint old, surplus
        cdef list paths
        # The last segment stays: it is appended to.
        while gone < self.segments.count - 1:
            segment = &self.segments.items[gone]
            old = now - segment.last_ns > retain_ns
            size = left - segment.bytes
            surplus = size >= retain_bytes
            if segment.end <= needed:
                if not (old and surplus):
                    break
            elif not drops or not ((retain_ns > 0 and old) or (retain_bytes > 0 and left > retain_bytes)):
                break
            left = size
            gone += 1
        if gone == 0:
            return 0
        paths = []
        for index in range(gone):
            segment = &self.segments.items[index]
            # The records first: an index without them is removed at the next start.
            paths += [(self._path(segment.first, kind), "") for kind in ("dat", "idx", "due")
                      if kind != "due" or segment.due_bytes]
        segments_drop(&self.segments, gone)
        self.synced = max(self.synced, self.segments.items[0].first)
        self.syncer.remove(paths)
        return gone

    def _path(self, int64_t first, str kind) -> str:
        return f"{self.folder}/{first:020d}.{kind}"

    def drop_delays(self) -> None:
        """Removes due times that have all passed; not those of the last segment, which may get more."""
        drop_due(&self.delays, self.clock.monotonic)
        if self.delays.count:
            return
        paths = []
        for index in range(self.segments.count - 1):
            if self.segments.items[index].due_bytes:
                paths.append((self._path(self.segments.items[index].first, "due"), ""))
                self.segments.items[index].due_bytes = 0
        if paths:
            self.syncer.remove(paths)

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
    def needs_sync(self) -> bool:
        """Whether anything was written since the last sync began."""
        return self.unsynced > 0 or self.recorder.at > 0

    def sync_began(self) -> tuple:
        """What a sync that begins now has to do; see nsqc.store.disk.syncer.Work."""
        self.recorder.told = False
        cdef int64_t index, again = 0 if self.rewrite else -1
        cdef Segment *segment
        cdef list data = []
        for index in range(self.segments.count):
            segment = &self.segments.items[index]
            if segment.first >= self.synced and not self.syncs:
                data.append((self._path(segment.first, "dat"), again))
                data.append((self._path(segment.first, "idx"), again))
                if segment.due_bytes:
                    data.append((self._path(segment.first, "due"), again))
        for path in self.recorder.paths:
            data.append((path, again))
        self.syncing = self.segments.items[self.segments.count - 1].first if self.segments.count else 0
        if not self.recorder.rooted:
            data.append((os.path.dirname(self.folder) or "/", -1))
        self.recorder.syncing_names = self.recorder.names
        self.unsynced = 0
        return data, self.rewrite or self.recorder.synced_names < self.recorder.names, b"", []

    def sync_succeeded(self):
        """The data there was when the sync began is durable."""
        self.rewrite = False
        self.recorder.names_synced(self.recorder.syncing_names)
        self.synced = max(self.synced, self.syncing)

    def sync_failed(self, list done not None):
        """It has to be written again before the next sync: the kernel may consider it clean."""
        self.rewrite = True
        self.unsynced += 1

    def was_active(self) -> bool:
        """Whether anything was written since the last call; for the idle check."""
        cdef bint was = self.active or self.recorder.active
        self.active = self.recorder.active = False
        return was

    def release(self):
        """Closes files and frees memory that an idle log does not need."""
        if self.writing is NULL:
            close_files(self)
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
        self.closed = True
        self.owner = None
        self.recorder.close()
        close_files(self)
        self._wake()
        self.syncer.finish(self)

    def delete(self):
        """Forgets everything, and removes the files."""
        if self.closed:
            return
        self.closed = True
        self.owner = None
        self.recorder.forget()
        self._wake()
        close_files(self)

    @property
    def needs_attention(self) -> bool:
        """Whether retain() or drop_delays() may have something to do later."""
        return self.segments.count > 1 or self.delays.count > 0

    @property
    def write_path(self) -> str:
        """The segment that is written to."""
        return self._path(self.segments.items[self.segments.count - 1].first if self.segments.count else 0, "dat")

    def recorded_again(self):
        """The journal, which could not be written for a while, can be."""
        if self.owner is not None:
            self.owner.on_appended(0)       # channels had stopped delivering

    @property
    def busy(self) -> bool:
        """Whether a thread works on its files."""
        return self.writing is not NULL or self.recorder.running or self.recorder.compacting

    @property
    def errno(self) -> int:
        """Of the last write of records or of the journal; 0: both succeeded."""
        return self.write_error or self.recorder.error


# ---------------------------------------------------------------------- descriptors

cdef void close_files(TopicLog log) noexcept:
    was_closed((log.dat >= 0) + (log.idx >= 0))
    if log.dat >= 0:
        close(log.dat)
    if log.idx >= 0:
        close(log.idx)
    log.dat = log.idx = -1


cdef void hand_over(TopicLog log, AppendJob *job) noexcept:
    """The job uses the open files; keep_files() or close_job_files() follows."""
    was_closed((log.dat >= 0) + (log.idx >= 0))
    job.dat = log.dat
    job.idx = log.idx
    log.dat = log.idx = -1


cdef void close_job_files(AppendJob *job) noexcept:
    if job.dat >= 0:
        close(job.dat)
    if job.idx >= 0:
        close(job.idx)
    job.dat = job.idx = -1


cdef void keep_files(TopicLog log, AppendJob *job) noexcept:
    if log.closed or not stays_open((job.dat >= 0) + (job.idx >= 0)):
        close_job_files(job)
        return
    log.dat = job.dat
    log.idx = job.idx


cdef void free_append(AppendJob *job) noexcept:
    buf_free(&job.out)
    buf_free(&job.due)
    free(job.pieces)
    free(job)


# ---------------------------------------------------------------------- due times

cdef void rebase_due(LogBuf *due, int64_t less) noexcept:
    """Records before these were refused: their offsets are lower."""
    cdef int64_t at = 0
    cdef DueEntry entry
    while at < due.length:
        due_load(due.c_data + at, &entry)
        entry.offset -= less
        due_store(due.c_data + at, &entry)
        at += DUE_BYTES


cdef void add_delay(TopicLog log, DueEntry *entry) noexcept:
    """A message without an entry is only delivered too early. One that the clock has jumped away from since it was
    published waits for the delay that was asked for, and not until the clock comes there."""
    cdef int64_t delay_ns = min(entry.due_ns - log.clock.wall, <int64_t> entry.delay_ms * NS_PER_MS if entry.delay_ms
                                else log.longest_delay_ns)
    cdef Delays *delays = &log.delays
    cdef Delay *grown
    cdef int64_t room
    if delays.first + delays.count == delays.room:
        if delays.first > delays.count:
            memmove(delays.items, delays.items + delays.first, <size_t> delays.count * sizeof(Delay))
            delays.first = 0
        else:
            room = max(delays.room + delays.room // 2, <int64_t> FIRST_DELAYS)
            grown = <Delay *> realloc(delays.items, <size_t> room * sizeof(Delay))
            if grown is NULL:
                return
            delays.items = grown
            delays.room = room
    delays.items[delays.first + delays.count].offset = entry.offset
    delays.items[delays.first + delays.count].due_ns = log.clock.monotonic + delay_ns
    delays.count += 1


cdef void drop_due(Delays *delays, int64_t now_ns) noexcept:
    """Those at the beginning whose time has come."""
    while delays.count and delays.items[delays.first].due_ns <= now_ns:
        delays.first += 1
        delays.count -= 1
    if delays.count == 0:
        free(delays.items)
        memset(delays, 0, sizeof(delays[0]))


cdef int64_t find_delay(Delays *delays, int64_t offset) noexcept:
    """The index of the first at or behind an offset."""
    cdef int64_t low = delays.first, high = delays.first + delays.count, middle
    while low < high:
        middle = (low + high) // 2
        if delays.items[middle].offset < offset:
            low = middle + 1
        else:
            high = middle
    return low
