"""One topic's log: commit, sync, retention, readers that wait. See the .pxd."""

# types: from nsqc.log import Log
# types: from nsqc.store.disk.manager import Done
# types: from nsqc.store.log.manager import History
cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING
from functools import partial
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from nsqc.store.disk.fileio cimport QUIET_NS, SHORT_BYTES, IoPool, Job, close_counted, io_write_ready
from nsqc.store.log.frame cimport (Buffer, Frame, buffer_free, delays_add, delays_drop_before, delays_drop_due,
                                   delays_free, delays_from, delays_of, frame_load, frames_add, frames_add_batch,
                                   frames_add_id, frames_bodies, frames_close, frames_free, frames_reserve_ids)
from nsqc.store.log.journal cimport Recorder
from nsqc.store.log.names import Extent, News, Point, new_id
from nsqc.store.log.reading cimport (ReadFrames, Readers, WaitsForRecords, file_close, file_gone, file_lend,
                                     file_return, run_read)
from nsqc.store.log.segment cimport (FRAMES_AT, AppendJob, SealJob, Segment, append_close, append_free, index_find,
                                     index_free, index_note, manifest_bytes, manifest_end, run_append, run_seal,
                                     seal_free, segment_trim, segment_tuple, segments_add, segments_at_time,
                                     segments_drop, segments_find, segments_free, segments_last, segments_rank,
                                     segments_reserve, segments_surplus)
from nsqc.store.memory cimport Clock, dated_ns
from nsqc.store.message cimport GuidFactory, guid_after, guid_write
from nsqc.store.publishids cimport PublishId
from nsqc.store.work cimport CommitSchedule


# ====================================================================== unsynced

cdef int unsynced_take(Unsynced *unsynced, Segments *segments, AppendJob *job, bint ends) noexcept:
    """Gives an append the segments that it has to sync first; -1: no memory. ends: it begins a segment."""
    cdef int64_t index, count = 0
    cdef Segment *items = segments.items
    if unsynced.lags:
        while count < segments.count and items[segments.count - 1 - count].first >= unsynced.synced:
            count += 1
    if not job.syncs:
        # The segment it appends to loses its durability.
        index = segments.count - max(count, <int64_t> (segments.count > 0 and not ends))
        job.durable_from = items[index].sequence if index < segments.count else 0
        return 0
    if count:
        job.earlier = <int64_t *> malloc(<size_t> count * sizeof(int64_t))
        if job.earlier is NULL:
            return -1
        job.earlier_count = count
        for index in range(count):
            job.earlier[index] = items[segments.count - count + index].first
        # A running sync may be about to fail; after that the files look clean.
        job.rewrites = unsynced.rewrite or unsynced.runs
    return 0


cdef void unsynced_appended(Unsynced *unsynced, bint syncs, int64_t last) noexcept:
    """last: first offset of the last segment."""
    unsynced.lags = not syncs
    if syncs:
        unsynced.synced = last
    else:
        unsynced.covers = False     # by the running sync


cdef void unsynced_began(Unsynced *unsynced, Segments *segments) noexcept:
    """A sync of everything written."""
    unsynced.syncing = segments.items[segments.count - 1].first if segments.count else 0
    unsynced.covers = unsynced.runs = True
    unsynced.failed = False


cdef void unsynced_ended(Unsynced *unsynced, bint succeeded) noexcept:
    # If two sync a file at once, only one of them may get an error that affects both.
    succeeded = succeeded and not unsynced.failed
    unsynced.runs = False
    unsynced.rewrite = not succeeded
    if succeeded:
        unsynced.synced = max(unsynced.synced, unsynced.syncing)
        unsynced.lags = unsynced.lags and not unsynced.covers
    unsynced.covers = False


# ====================================================================== readers

cdef void wake_readers(TopicLog log) noexcept:
    if log.readers is not None:
        log.readers.wake(readable_to(log), log.closed)


cdef inline int64_t readable_to(TopicLog log) noexcept:
    return min(log.next, log.shipped_to) if log.commit is not None and log.commit.ships else log.next


cdef str file_path(TopicLog log, int64_t first):
    return f"{log.folder}/{first:020d}.log"


# ====================================================================== losses

cdef enum:
    MOST_RANGES = 1024          # of damage; records beyond them may count twice


cdef int64_t damage_found(TopicLog log, int64_t first, int64_t end):
    cdef int64_t fresh = end - first, begin, after
    cdef list kept = []
    for begin, after in log.damage:
        if after < first or begin > end:
            kept.append((begin, after))
            continue
        fresh -= max(min(after, end) - max(begin, first), <int64_t> 0)
        first, end = min(begin, first), max(after, end)
    if len(kept) < MOST_RANGES:
        kept.append((first, end))
    log.damage = kept
    log.damaged += max(fresh, <int64_t> 0)
    losses_found(log)
    return max(fresh, <int64_t> 0)


cdef void losses_found(TopicLog log):
    if log.losers is not None:
        log.losers[log.name] = log


# ====================================================================== writing

cdef enum:
    MOST_SPARE = 1048576        # most memory kept for the next buffer


cdef void write_next(TopicLog log) noexcept:
    cdef AppendJob *job
    cdef int64_t records, body_bytes
    if log.frames.records == 0:
        log.commit.one_ended(0)
        return
    frames_close(&log.frames, log.guids)
    job = new_job(log)
    if job is NULL:     # drops the waiting records
        records, body_bytes = log.frames.records, frames_bodies(&log.frames.out)
        frames_free(&log.frames)
        log.write_error = ENOMEM
        if log.owner is not None:
            log.owner.on_written(ENOMEM, records, body_bytes)
        log.commit.one_ended(ENOMEM)
        return
    log.commit.syncs = log.syncs
    log.writing = job
    log.io.submit(&job.job, log)


cdef AppendJob *new_job(TopicLog log) noexcept:
    """NULL: no memory."""
    cdef AppendJob *job = <AppendJob *> calloc(1, sizeof(AppendJob))
    cdef Segment *last
    if job is NULL:
        return NULL
    job.fd = -1
    job.syncs = log.syncs
    if (unsynced_take(&log.unsynced_files, &log.segments, job, log.ends) < 0
            or segments_reserve(&log.segments, most_begun(log.frames.out.length, log.max_file)) < 0):
        append_free(job)
        return NULL
    job.job.run = run_append
    job.c_folder = PyBytes_AS_STRING(log.c_folder)
    job.offset = max(log.next, log.resume_at)
    job.records = log.frames.records
    job.out = log.frames.out
    memset(&log.frames.out, 0, sizeof(Buffer))
    log.frames.records = 0
    job.wall_ns = log.clock.wall
    job.max_file = log.max_file
    job.manifest = log.manifest
    job.manifest.id_key = log.id_key
    job.renews = memcmp(log.manifest.id_key, log.id_key, sizeof(log.id_key)) != 0
    job.makes_folder = not log.recorder.exists
    job.syncs_parent = not log.recorder.rooted
    job.syncs_names = log.recorder.synced_names < log.recorder.names
    job.names = log.recorder.names
    last = segments_last(&log.segments)     # its current address: making room may have moved it
    job.fresh = last is NULL or log.ends
    if last is not NULL:
        job.last = last[0]
    if job.fresh:
        close_counted(&log.fd)
    else:
        job.synced = log.durable_to
        job.ready = log.ready_to
        job.fd = log.fd
        log.fd = -1
    job.lost = log.lost
    job.job.bytes = job.out.length
    # Publishers wait for it: handing it to a thread and back would take longer than the write itself.
    job.job.is_short = (
        job.out.length <= SHORT_BYTES and not job.fresh and not job.syncs and job.manifest.end_size == 0
        and not job.renews and last.position - FRAMES_AT + job.out.length <= job.max_file
        and (log.clock.monotonic - log.wrote_ns < QUIET_NS or job.fd >= 0 and io_write_ready(job.fd, last.position)))
    return job


cdef inline int64_t most_begun(int64_t length, int64_t max_file) noexcept:
    """The most segments that a write may begin: a batch that does not fit begins a segment, so the frames of two
    consecutive segments exceed the limit of one."""
    return 3 + 2 * (length // max(max_file, <int64_t> 1))


cdef void finish_write(TopicLog log, AppendJob *job) noexcept:
    cdef int error = job.error
    log.writing = NULL
    log.wrote_ns = log.clock.monotonic
    log.write_error = error
    if error == 0:
        try:
            enter(log, job)
        except Exception as failure:
            log.log.error("LOG(%s): after a write - %r", log.name, failure)
        if log.closed:
            append_close(job)
        log.fd = job.fd
        take_tail(log, job)
        log.commit.end = log.next
        if log.owner is not None:
            log.owner.on_appended(job.records)
            wake_readers(log)
        if log.recorder.changed is not None:
            log.recorder.changed(job.job.bytes)
    else:
        log.ends = True
        if job.earlier_failed:
            log.unsynced_files.rewrite = log.unsynced_files.failed = True
        append_close(job)
        if log.owner is not None:
            log.owner.on_written(error, job.records, frames_bodies(&job.out))
    append_free(job)
    log.commit.one_ended(error)    # answers publishers; consumers first, who wait longer


cdef int enter(TopicLog log, AppendJob *job) except -1:
    """Enters the written records into the table of segments and into the index."""
    cdef Segment *last
    cdef Segment *written
    cdef int64_t index, at = 0
    for index in range(job.written.count):
        written = &job.written.items[index]
        if written.sequence == 0 or index == 0 and log.segments.count == 0:
            continue        # there was none yet
        last = segments_last(&log.segments)
        if index:
            if last is not NULL:
                seal_begin(log, last)
            index_free(&log.index)
            log.index.time_ns = written.before_time_ns
        at = note(log, job, at, written, last.position if index == 0 else FRAMES_AT)
        if index:
            segments_add(&log.segments, written)
        else:
            log.segments.bytes += written.position - last.position
            written.sequence, written.lost = last.sequence, last.lost     # as they are in the table
            last[0] = written[0]
    unsynced_appended(&log.unsynced_files, job.syncs, segments_last(&log.segments).first)
    log.durable_to = job.synced
    log.ready_to = job.ready
    log.manifest = job.manifest
    log.lost = 0
    log.recorder.exists = True
    log.recorder.names += job.made_names
    if job.synced_names:
        log.recorder.names_synced(job.names)
    log.ends = False
    log.active = True
    log.recorder.wrote()
    if not job.syncs:
        log.unsynced += job.records
        if log.unsynced >= log.syncer.every:
            log.syncer.start_rested(log)
    return 0


cdef int64_t note(TopicLog log, AppendJob *job, int64_t at, const Segment *written, int64_t position) noexcept:
    """Enters the frames that were written to a segment from a position on, and lie from `at` on in the job's bytes;
    returns where they end there."""
    cdef Frame frame
    while position < written.position:
        frame_load(job.out.c_data + at, &frame)
        index_note(&log.index, &frame, position)
        if frame.delays:
            delays_add(&log.delays, job.out.c_data + at, &frame, INT64_MAX, log.longest_delay_ns, log.clock)
        at += frame.length
        position += frame.length
    return at


cdef void take_tail(TopicLog log, AppendJob *job) noexcept:
    """The last write becomes readable from memory."""
    if 0 < log.tail.room <= MOST_SPARE and log.spare.c_data is NULL:
        log.spare = log.tail
        log.spare.length = 0
        memset(&log.tail, 0, sizeof(log.tail))
    buffer_free(&log.tail)
    log.tail_first = job.offset
    log.tail_serial += 1
    log.next = log.resume_at = job.offset + job.records
    if not log.held:
        log.visible = log.next
    log.tail = job.out
    memset(&job.out, 0, sizeof(job.out))


# ---------------------------------------------------------------------- seals

cdef void seal_begin(TopicLog log, const Segment *segment) noexcept:
    """Has a thread seal the last segment; without memory readers walk further, and a start reads it for ids."""
    cdef SealJob *job = <SealJob *> calloc(1, sizeof(SealJob))
    if job is NULL or log.index.count == 0 and not log.index.has_ids:
        free(job)
        return
    job.job.run = run_seal
    job.job.bytes = log.index.count * sizeof(log.index.items[0])
    job.c_folder = PyBytes_AS_STRING(log.c_folder)
    job.segment = segment[0]
    job.index = log.index
    memset(&log.index, 0, sizeof(log.index))
    job.summarises = log.dedupe_ns > 0 and job.index.has_ids
    job.summary.log_id = log.manifest.log_id
    job.summary.key = log.id_key
    job.summary.end = segment.end
    job.summary.time_ns = segment.time_ns
    log.sealing += 1
    log.io.submit(&job.job, log)


cdef void seal_ended(TopicLog log, SealJob *job) noexcept:
    log.sealing -= 1
    if job.summary.count:
        log.summaries.append((job.segment.first, job.summary.time_ns, job.summary.count))
        forget_summaries(log)
    seal_free(job)


cdef void forget_summaries(TopicLog log) noexcept:
    """Removes those whose ids are all forgotten."""
    cdef int64_t later = 0
    cdef list gone = []
    try:
        later = sum([summary[2] for summary in log.summaries])
        for first, time_ns, count in log.summaries:
            later -= count
            if log.dedupe_ns and time_ns >= log.clock.wall - log.dedupe_ns and later < log.dedupe_ids:
                break
            gone.append((f"{log.folder}/ids.{first:020d}", ""))
        del log.summaries[:len(gone)]
        if gone and not log.closed:
            log.syncer.remove(gone)
    except Exception as error:
        log.log.error("LOG(%s): failed to remove publish ids - %r", log.name, error)


# ====================================================================== log

cdef enum:
    MOST_GONE = 256             # segments that one call removes: each path is built on the loop


@cython.final
@cython.no_gc_clear     # __dealloc__ closes files
cdef class TopicLog(LoopWork):
    """The messages of a topic, in the order of their offsets. Created by the manager."""

    def __cinit__(self):
        self.fd = self.reading.fd = -1
        self.damage = []
        self.summaries = []

    def __dealloc__(self):
        close_counted(&self.fd)
        file_close(&self.reading)
        segments_free(&self.segments)
        frames_free(&self.frames)
        buffer_free(&self.spare)
        buffer_free(&self.tail)
        delays_free(&self.delays)
        index_free(&self.index)

    def __init__(self, str name not None, str folder not None, IoPool io not None, syncer: Syncer, log: Log,
                 Clock clock not None, CommitSchedule schedule not None, GuidFactory guids not None,
                 opened: Opened | None):
        """opened: an Opened of recovery.pxd, which its enter() adds; None: a new log."""
        self.name = name
        self.folder = folder
        self.c_folder = os.fsencode(folder)
        self.io = io
        self.syncer = syncer
        self.log = log
        self.clock = clock
        self.guids = guids
        self.longest_delay_ns = INT64_MAX
        self.ends = True
        self.manifest.log_id = new_id() if opened is None else 0    # enter() sets it
        self.recorder = Recorder(folder, io, schedule, syncer, log, self, opened is not None,
                                 None if opened is None else opened.earlier.journal)

    # ------------------------------------------------------------------ appending

    cdef int append(self, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                    uint32_t origin_size) noexcept:
        cdef int64_t before = collecting(self)
        return collected(self, before, frames_add(&self.frames, self.guids, wall_ns, c_body, size, defer_ms, c_origin,
                                                  origin_size))

    cdef int append_batch(self, int64_t wall_ns, const char *c_payload, int64_t length, int64_t records,
                          uint32_t defer_ms) noexcept:
        cdef int64_t before = collecting(self)
        return collected(self, before, frames_add_batch(&self.frames, self.guids, wall_ns, c_payload, length, records,
                                                        defer_ms))

    cdef int64_t unwritten_records(self) noexcept:
        return self.frames.records

    def id_written(self, int64_t index) -> builtins.bytes | None:
        """The id of a message, by its index in the last write; None: it is no longer in memory."""
        cdef Frame frame
        cdef char c_id[16]
        cdef int64_t at = 0
        if self.commit.ships:
            return None         # others may have been written while it waited for the bucket
        while at < self.tail.length:
            frame_load(self.tail.c_data + at, &frame)
            if index < frame.records:
                guid_write(guid_after(frame.id, index), c_id)
                return c_id[:16]
            index -= frame.records
            at += frame.length
        return None

    cdef bint run(self) noexcept:
        write_next(self)
        return False

    cdef void job_done(self, Job *job) noexcept:
        if job.run == run_seal:
            seal_ended(self, <SealJob *> job)
        else:
            finish_write(self, <AppendJob *> job)

    # ------------------------------------------------------------------ publish ids

    cdef int reserve_ids(self, int64_t count) noexcept:
        return frames_reserve_ids(&self.frames, count)

    cdef void add_id(self, const PublishId *id) noexcept:
        frames_add_id(&self.frames, <const char *> id)

    cdef void remember(self, int64_t window_ns, int64_t limit, const uint64_t *key) noexcept:
        self.dedupe_ns = window_ns
        self.dedupe_ids = limit
        self.id_key[0] = key[0] if window_ns else 0
        self.id_key[1] = key[1] if window_ns else 0
        if window_ns == 0 and self.summaries:
            forget_summaries(self)

    cdef void hold(self, int64_t at) noexcept:
        self.held = True
        self.visible = at

    cdef void unhold(self) noexcept:
        self.held = False
        self.visible = self.next

    # ------------------------------------------------------------------ deferred messages

    cdef int64_t delay_of(self, int64_t offset) noexcept:
        return delays_of(&self.delays, offset, self.clock.monotonic) if self.delays.count else 0

    cdef int64_t delayed_from(self, int64_t offset) noexcept:
        return delays_from(&self.delays, offset, self.clock.monotonic) if self.delays.count else 0

    # ------------------------------------------------------------------ readers

    def when_readable(self, int64_t offset, call: Callable[[], object]) -> WaitsForRecords:
        """Calls call() once a record exists at this offset, maybe at once; returns an object that cancels it."""
        if readable_to(self) > offset or self.closed:
            call()
            return WaitsForRecords.__new__(WaitsForRecords)
        if self.readers is None:
            self.readers = Readers(self.recorder.schedule.loop)
        return self.readers.add(offset, call)

    cdef int is_here(self, int64_t index, call) noexcept:
        try:
            return -1 if self.history is None else self.history.fetch(
                self.folder, segment_tuple(&self.segments.items[index]), call)
        except Exception as error:
            self.log.error("LOG(%s): failed to fetch a segment - %r", self.name, error)
            return -1

    cdef void was_fetched(self, int64_t first) noexcept:
        try:
            if self.history is not None:
                self.history.forget(self.folder, first)
        except Exception as error:
            self.log.error("LOG(%s): failed to forget a segment - %r", self.name, error)

    cdef void read_now(self, ReadFrames *job) noexcept:
        file_lend(&self.reading, job)
        run_read(&job.job)
        self.active = True
        if file_return(&self.reading, job, self.closed):
            self.syncer.uses(self)      # it reports the end of reads

    cdef int64_t position_before(self, int64_t index, int64_t offset) noexcept:
        if offset <= self.segments.items[index].first:
            return FRAMES_AT
        if index < self.segments.count - 1:
            return 0
        entry = index_find(&self.index, offset)
        return entry.position if entry is not NULL else 0

    cdef int64_t first_offset(self) noexcept:
        return self.segments.items[0].first if self.segments.count else self.next

    @property
    def first(self) -> int:
        """The first existing offset; following, if there is none."""
        return self.segments.items[0].first if self.segments.count else self.following

    @property
    def following(self) -> int:
        """The next record gets this offset or a higher one. Never falls; next does if a power failure loses records."""
        return max(self.next, self.resume_at)

    @property
    def bytes(self) -> int:
        """Size of all records."""
        return self.segments.bytes

    @property
    def missing(self) -> int:
        """Messages missing between segments."""
        return self.segments.missing + self.lost

    def found_damaged(self, int64_t first, int64_t end) -> int:
        """A reader found these offsets damaged; returns the number of new ones."""
        return damage_found(self, first, end)

    @property
    def segment_numbers(self) -> tuple[int, int]:
        """The number of the oldest segment, and the one after the newest. A segment keeps its number."""
        return self.segments.dropped, self.segments.dropped + self.segments.count

    def numbered(self, int64_t number, int64_t most) -> list[Segment]:
        """The segment with this number and later ones, up to `most`, as Segment of names.py; none if the first is
        gone."""
        cdef int64_t index, begin = number - self.segments.dropped
        if begin < 0:
            return []
        return [segment_tuple(&self.segments.items[index])
                for index in range(begin, min(begin + most, self.segments.count))]

    def segments_at(self, int64_t time_ns) -> list[Segment]:
        """As numbered(), from the segment with the first record of this publish time or a later one; empty: none."""
        cdef int64_t index = segments_at_time(&self.segments, time_ns)
        return self.numbered(self.segments.dropped + index, 1) if index < self.segments.count else []

    def position_for(self, int64_t offset) -> int:
        """Where a walk to an offset may begin, for find_run()."""
        cdef int64_t index = segments_find(&self.segments, offset)
        return self.position_before(index, offset) if index >= 0 else 0

    def segment_at(self, int64_t offset) -> Segment | None:
        """The segment with an offset, or the first one after it; None: no segment yet."""
        cdef int64_t index
        cdef Segment *segment
        for index in range(max(segments_find(&self.segments, offset), 0), self.segments.count):
            segment = &self.segments.items[index]
            if segment.first < segment.end and offset < segment.end:
                return segment_tuple(segment)
        return None

    @property
    def id(self) -> str | None:
        """The log's id, as 16 hexadecimal digits: differs from that of an earlier topic with this name. None: not
        written yet, because the log is empty or the write failed."""
        return f"{self.manifest.log_id:016x}" if self.manifest.newest else None

    def rank(self, int64_t offset) -> int:
        """Number of records before an offset: subtract two ranks to count the records between."""
        return segments_rank(&self.segments, offset)

    # ------------------------------------------------------------------ what is new

    def since(self, point: Point | None = None) -> News:
        """What is new since a point of this log, from memory; all of it without a point, or with one of another log.

        The files can be read on any thread: retention and compaction may remove them, nothing changes them. Operations
        of channels that wait to be written are not in it; a reader of this delivers again what they finish.
        """
        cdef int64_t index, position
        cdef Segment *segment
        cdef list frames = []
        if point is None or point.id != self.manifest.log_id:
            point = Point(self.manifest.log_id, 0, 0, 0, 0, FRAMES_AT, 0)
        # First: no cursor is beyond the frames.
        is_state, journal = self.recorder.since(point.file, point.file_at)
        for index in range(self.segments.count):
            segment = &self.segments.items[index]
            if segment.sequence < point.sequence or segment.remote:
                continue
            position, first = FRAMES_AT, segment.first
            if segment.salt == point.salt:
                position, first = point.position, point.next
            if position < segment.position:
                frames.append(Extent(file_path(self, segment.first), segment.salt, position,
                                     segment.position - position, first, segment.end, segment.sequence))
        segment = segments_last(&self.segments)
        if segment is not NULL:
            point = Point(point.id, 0, 0, segment.sequence, segment.salt, segment.position, segment.end)
        return News(journal, frames,
                    point._replace(file=self.recorder.file.number, file_at=self.recorder.file.position), is_state,
                    self.recorder.last, self.first_offset(), self.manifest.reserved,
                    (<char *> self.manifest.id_key)[:16] if self.manifest.id_key[0] or self.manifest.id_key[1] else b"",
                    segment.time_ns if segment is not NULL else 0, segment.due_ns if segment is not NULL else 0,
                    self.dedupe_ns)

    def shipped(self, int64_t end) -> None:
        """The bucket has the records before an offset: answers the publishes, and wakes the readers, that waited."""
        self.shipped_to = max(self.shipped_to, end)
        if self.commit is not None:
            self.commit.shipped(self.shipped_to)
            wake_readers(self)

    def unshipped(self, int error, int64_t until_ns) -> None:
        """Answers publishes that were written before this monotonic time and still wait, with an errno."""
        if self.commit is not None:
            self.commit.give_up(error, until_ns)

    @property
    def readable(self) -> int:
        """The offset before which readers by offset see records."""
        return readable_to(self)

    # ------------------------------------------------------------------ retention

    def retain(self, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops) -> int:
        """Removes up to MOST_GONE unneeded segments; returns their number.

        needed: the first offset that a channel needs. A segment before that goes if its last record is older than
        retain_ns and the others have retain_bytes. drops: segments beyond either limit go, needed or not.
        """
        cdef int64_t first, index, gone
        self.clock.refresh()
        if self.segments.count:
            dated_ns(self.clock, self.segments.items[0].time_ns)
        gone = min(<int64_t> MOST_GONE, segments_surplus(&self.segments, needed, retain_ns, retain_bytes, drops,
                                                         self.clock.wall, self.clock.since))
        if self.sealing and self.dedupe_ns or self.offloading:
            gone = 0        # their ids are still to be summarised, or their files replaced
        if gone:
            paths = [(file_path(self, self.segments.items[index].first), "") for index in range(gone)]
            if self.history is not None:
                for index in range(gone):
                    if self.segments.items[index].remote:
                        self.history.forget(self.folder, self.segments.items[index].first)
            segments_drop(&self.segments, gone)
            first = self.segments.items[0].first
            delays_drop_before(&self.delays, first)
            file_gone(&self.reading, 0, first)
            self.unsynced_files.synced = max(self.unsynced_files.synced, first)
            self.recorder.note_removed(first)
            self.recorder.when_written(partial(self._remove, paths))
        return gone

    def _remove(self, list paths not None):
        """The journal has it: until that is on disk, a power failure would make the segments seem lost."""
        self.syncer.remove(paths, self.recorder.paths)

    # ------------------------------------------------------------------ remote segments

    def offload(self, int64_t most_bytes, int64_t kept_to) -> list[int]:
        """Makes the oldest segments remote until this disk has no more than most_bytes of the log: those before an
        offset, which the bucket keeps, without deferred messages that are not due. Returns their first offsets:
        offloaded() follows once their files are replaced."""
        cdef int64_t index, local = self.local_bytes
        cdef Segment *segment
        cdef list found = []
        self.clock.refresh()
        if self.sealing or self.offloading:
            return found
        for index in range(self.segments.count - 1):
            segment = &self.segments.items[index]
            if local <= most_bytes or len(found) == MOST_GONE or segment.end > kept_to:
                break
            if not segment.remote and segment.due_ns <= self.clock.wall:
                local -= segment.position - FRAMES_AT
                segment.remote = True
                file_gone(&self.reading, segment.first, segment.first + 1)
                found.append(segment.first)
        self.offloading = len(found) > 0
        return found

    def offloaded(self, kept: list[int]) -> None:
        """kept: the segments whose files could not be replaced."""
        cdef int64_t index
        self.offloading = False
        for index in range(self.segments.count):
            if self.segments.items[index].first in kept:
                self.segments.items[index].remote = False

    def forget_fetched(self, int64_t first) -> None:
        """The file with the fetched frames of a segment is removed."""
        file_gone(&self.reading, first, first + 1)

    @property
    def local_bytes(self) -> int:
        """Size of the records on this disk."""
        cdef int64_t index, found = 0
        for index in range(self.segments.count):
            if not self.segments.items[index].remote:
                found += self.segments.items[index].position - FRAMES_AT
        return found

    # ------------------------------------------------------------------ for the syncer

    @property
    def meta_path(self) -> str:
        """What the last sync of a stop replaces."""
        return f"{self.folder}/manifest"

    @property
    def rests(self) -> bool:
        """Whether it rests after a sync."""
        return True

    @property
    def needs_sync(self) -> bool:
        """Whether written data may not be on disk."""
        return self.ending is not None or self.unsynced_files.lags or (len(self.recorder.numbers) > 0 and (
            self.recorder.lags or self.recorder.synced_names < self.recorder.names))

    def continue_at(self, int64_t offset):
        """The log is new, and an earlier one of its topic used all offsets before this one."""
        self.next = self.visible = self.tail_first = self.resume_at = offset

    def was_synced(self) -> None:
        """The earlier run was stopped, with everything on disk: a stop without writes has nothing to sync."""
        self.recorder.lags = False
        self.recorder.names_synced(self.recorder.names)

    def sync_from(self, int64_t offset):
        """An earlier run was killed: its writes to segments from this offset on may not be on disk. Below 0: from the
        offset that the newest header names."""
        if offset >= 0:
            self.unsynced_files.synced = offset
        self.unsynced_files.lags = True
        self.recorder.wrote()

    def sync_began(self) -> tuple[Data, bool, builtins.bytes, Done]:
        """Returns the work of a sync that begins now; see nsqc.store.disk.manager.Work."""
        cdef int64_t index, again = 0 if self.unsynced_files.rewrite else -1
        cdef Segment *segment
        cdef list data = []
        self.recorder.told = self.recorder.lags = False
        for index in range(self.segments.count):
            segment = &self.segments.items[index]
            if self.unsynced_files.lags and segment.first >= self.unsynced_files.synced:
                data.append((file_path(self, segment.first), again))
        if self.manifest.newest:
            data.append((f"{self.folder}/manifest", -1))
        data += [(path, again) for path in self.recorder.paths]
        if not self.recorder.rooted:
            data.append((os.path.dirname(self.folder) or "/", -1))
        self.recorder.syncing_names = self.recorder.names
        unsynced_began(&self.unsynced_files, &self.segments)
        segment = segments_last(&self.segments)
        self.syncing_to = 0 if segment is NULL else segment.position
        self.unsynced = 0
        is_new = self.unsynced_files.rewrite or self.recorder.synced_names < self.recorder.names
        return data, is_new, self.ending or b"", []

    def sync_succeeded(self):
        """Data from before the sync is durable."""
        if self.segments.count and segments_last(&self.segments).first == self.unsynced_files.syncing:
            self.durable_to = max(self.durable_to, self.syncing_to)
        unsynced_ended(&self.unsynced_files, True)
        self.recorder.names_synced(self.recorder.syncing_names)

    def sync_failed(self, done: Done):
        """The data has to be rewritten before the next sync: the kernel may consider it clean."""
        unsynced_ended(&self.unsynced_files, False)
        self.unsynced += 1
        self.recorder.lags = True

    def was_active(self) -> bool:
        """Whether anything was written since the last call; for the idle check."""
        cdef bint was = self.active or self.recorder.active
        self.active = self.recorder.active = False
        return was

    def release(self):
        """Closes files and frees memory that an idle log does not need."""
        self._rest()
        self.recorder.close_file()
        if self.frames.out.length == 0:
            frames_free(&self.frames)
        delays_drop_due(&self.delays, self.clock.monotonic)
        if self.owner is not None:
            self.owner.on_idle()

    cdef void _rest(self) noexcept:
        """Closes files and frees memory, except for unwritten records."""
        close_counted(&self.fd)
        file_close(&self.reading)
        buffer_free(&self.spare)
        buffer_free(&self.tail)
        self.tail_first = self.next

    # ------------------------------------------------------------------ the end

    cdef void release_owner(self) noexcept:
        self.owner = None

    def close(self):
        """For a stop, with no job running: writes the journal; all published messages are already written."""
        if self.closed:
            return
        self.closed = True
        self.owner = None
        self.recorder.close()
        if not self.ends and segments_last(&self.segments) is not NULL:
            self._note_end()
        self._rest()
        wake_readers(self)
        self.syncer.finish(self)

    cdef int _note_end(self) except -1:
        """Leaves the end of the last segment to the last sync, so that the next start need not scan for it."""
        cdef Segment *last = segments_last(&self.segments)
        if self.manifest.end_size == 0 or self.manifest.end != last.end:
            if self.ready_to > last.position and segment_trim(self.c_folder, last) != 0:
                return 0        # it scans
            manifest_end(&self.manifest, last, last.position)
            self.manifest.id_key = self.id_key
            self.ending = manifest_bytes(&self.manifest)
        return 0

    def delete(self):
        """Forgets everything, and removes the files."""
        if self.closed:
            return
        self.closed = True
        self.owner = None
        if self.losers is not None and self.losers.get(self.name) is self:
            del self.losers[self.name]
        self.recorder.forget()
        self.syncer.forget(self)
        if self.readers is not None:
            self.readers.wake(INT64_MAX, False)
        self._rest()

    @property
    def write_path(self) -> str:
        """The segment being written."""
        return file_path(self, self.segments.items[self.segments.count - 1].first if self.segments.count else 0)

    def recorded_again(self):
        """The journal is writable again."""
        if self.owner is not None:
            self.owner.on_appended(0)       # channels had stopped delivering

    @property
    def busy(self) -> bool:
        """Whether a thread works on its files."""
        return self.writing is not NULL or self.recorder.running or self.recorder.compacting or self.sealing > 0

    @property
    def errno(self) -> int:
        """Of the last write of records or of the journal; 0: both succeeded."""
        return self.write_error or self.recorder.error


cdef inline int64_t collecting(TopicLog log) noexcept:
    """Bytes collected so far, in reused memory if there is any."""
    if log.frames.out.c_data is NULL and log.spare.c_data is not NULL:
        log.frames.out = log.spare
        memset(&log.spare, 0, sizeof(Buffer))
    return log.frames.out.length


cdef inline int collected(TopicLog log, int64_t before, int answer) noexcept:
    """Schedules the write of added records; returns the answer."""
    if answer == 0:
        log.commit.unwritten += log.frames.out.length - before
        log.commit.write_later(log)
    return answer
