"""The log of a topic. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memset

import os
from functools import partial

from nsqc.store.clock cimport Clock, dated_ns
from nsqc.store.commit cimport CommitSchedule
from nsqc.store.disk.pool cimport IoPool, Job
from nsqc.store.guid cimport GuidFactory, guid_after, guid_write
from nsqc.store.log.append cimport AppendJob
from nsqc.store.log.buffer cimport Buffer, buffer_free
from nsqc.store.log.delays cimport delays_drop_before, delays_drop_due, delays_from, delays_of
from nsqc.store.log.frame cimport Frame, frame_load
from nsqc.store.log.frames cimport frames_add, frames_add_batch, frames_free
from nsqc.store.log.index cimport index_find
from nsqc.store.log.logstate cimport damage_found, file_path, losses_forgotten, next_appended, wake_readers
from nsqc.store.log.manifest cimport manifest_write
from nsqc.store.log.names import new_id
from nsqc.store.log.read cimport ReadFrames, file_close, file_lend, file_removed, file_return, run_read
from nsqc.store.log.readers cimport Readers, WaitsForRecords
from nsqc.store.log.recorder cimport Recorder
from nsqc.store.log.seal cimport segment_trim
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.segments cimport (Segment, segments_at_time, segments_drop, segments_find, segments_last,
                                      segments_rank, segments_surplus)
from nsqc.store.log.unsynced cimport unsynced_began, unsynced_ended
from nsqc.store.log.writing cimport close_written, finish_write, write_next

cdef enum:
    MOST_GONE = 256             # segments that one call removes: each path is built on the loop


@cython.final
@cython.no_gc_clear
cdef class TopicLog(LogState):
    """The messages of a topic, in the order of their offsets. Created by the manager."""

    def __init__(self, str name not None, str folder not None, IoPool io not None, syncer, log, Clock clock not None,
                 CommitSchedule schedule not None, GuidFactory guids not None, opened):
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
        self.manifest.log_id = new_id()
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

    cdef int64_t appended(self) noexcept:
        """The offset of the next record added to the buffer."""
        return next_appended(self)

    cdef int64_t unwritten_records(self) noexcept:
        return self.frames.records

    def id_written(self, int64_t index):
        """The id of a message, by its index in the last write; None: it is no longer in memory."""
        cdef Frame frame
        cdef char c_id[16]
        cdef int64_t at = 0
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
        finish_write(self, <AppendJob *> job)

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

    def when_readable(self, int64_t offset, call):
        """Calls call() once a record exists at this offset, maybe at once; returns an object that cancels it."""
        if self.next > offset or self.closed:
            call()
            return WaitsForRecords.__new__(WaitsForRecords)
        if self.readers is None:
            self.readers = Readers(self.recorder.schedule.loop)
        return self.readers.add(offset, call)

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
    def segment_numbers(self) -> tuple:
        """The number of the oldest segment, and the one after the newest. A segment keeps its number."""
        return self.segments.dropped, self.segments.dropped + self.segments.count

    def numbered(self, int64_t number, int64_t most) -> list:
        """The segment with this number and later ones, up to `most`, as Bounds of names.py; none if the first is
        gone."""
        cdef int64_t index, begin = number - self.segments.dropped
        if begin < 0:
            return []
        return [bounds_of(&self.segments.items[index])
                for index in range(begin, min(begin + most, self.segments.count))]

    def segments_at(self, int64_t time_ns) -> list:
        """As numbered(), from the segment with the first record of this publish time or a later one; empty: none."""
        cdef int64_t index = segments_at_time(&self.segments, time_ns)
        return self.numbered(self.segments.dropped + index, 1) if index < self.segments.count else []

    def position_for(self, int64_t offset) -> int:
        """Where a walk to an offset may begin, for find_run()."""
        cdef int64_t index = segments_find(&self.segments, offset)
        return self.position_before(index, offset) if index >= 0 else 0

    def segment_at(self, int64_t offset):
        """The Bounds of the segment with an offset, or of the first one after it; None: no segment yet."""
        cdef int64_t index
        cdef Segment *segment
        for index in range(max(segments_find(&self.segments, offset), 0), self.segments.count):
            segment = &self.segments.items[index]
            if segment.first < segment.end and offset < segment.end:
                return bounds_of(segment)
        return None

    @property
    def id(self):
        """The log's id, as 16 hexadecimal digits: differs from that of an earlier topic with this name. None: not
        written yet, because the log is empty or the write failed."""
        return f"{self.manifest.log_id:016x}" if self.manifest.newest else None

    def rank(self, int64_t offset) -> int:
        """Number of records before an offset: subtract two ranks to count the records between."""
        return segments_rank(&self.segments, offset)

    # ------------------------------------------------------------------ retention

    def retain(self, int64_t needed, int64_t retain_ns, int64_t retain_bytes, bint drops) -> int:
        """Removes segments that are not needed any more, at most MOST_GONE; returns how many.

        needed: the first offset that a channel needs. A segment before that goes if its last record is older than
        retain_ns and the others have retain_bytes. drops: segments beyond either limit go, needed or not.
        """
        cdef int64_t first, index, gone
        self.clock.refresh()
        if self.segments.count:
            dated_ns(self.clock, self.segments.items[0].time_ns)
        gone = min(<int64_t> MOST_GONE, segments_surplus(&self.segments, needed, retain_ns, retain_bytes, drops,
                                                         self.clock.wall, self.clock.since))
        if gone:
            paths = [(file_path(self, self.segments.items[index].first), "") for index in range(gone)]
            segments_drop(&self.segments, gone)
            first = self.segments.items[0].first
            delays_drop_before(&self.delays, first)
            file_removed(&self.reading, first)
            self.unsynced_files.synced = max(self.unsynced_files.synced, first)
            self.recorder.note_removed(first)
            self.recorder.when_written(partial(self._remove, paths))
        return gone

    def _remove(self, list paths not None):
        """The journal has it: until that is on disk, a power failure would make the segments seem lost."""
        self.syncer.remove(paths, self.recorder.paths)

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
        """Records written since the last sync began, by appends without a sync."""
        return self.unsynced_records

    @property
    def needs_sync(self) -> bool:
        """Whether written data may not be on disk."""
        return self.unsynced_files.lags or len(self.recorder.numbers) > 0

    def continue_at(self, int64_t offset):
        """The log is new, and an earlier one of its topic used all offsets before this one."""
        self.next = self.visible = self.tail_first = self.resume_at = offset

    def sync_from(self, int64_t offset):
        """An earlier run was killed: its writes to segments from this offset on may not be on disk. Below 0: from the
        offset that the newest header names."""
        if offset >= 0:
            self.unsynced_files.synced = offset
        self.unsynced_files.lags = True
        self.recorder.wrote()

    def sync_began(self) -> tuple:
        """Returns the work of a sync that begins now; see nsqc.store.disk.syncer.Work."""
        cdef int64_t index, again = 0 if self.unsynced_files.rewrite else -1
        cdef Segment *segment
        cdef list data = []
        self.recorder.told = False
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
        if segment is not NULL:
            self.syncing_first, self.syncing_to = segment.first, segment.position
        self.unsynced_records = 0
        return data, self.unsynced_files.rewrite or self.recorder.synced_names < self.recorder.names, b"", []

    def sync_succeeded(self):
        """Data from before the sync is durable."""
        if self.segments.count and segments_last(&self.segments).first == self.syncing_first:
            self.durable_to = max(self.durable_to, self.syncing_to)
        unsynced_ended(&self.unsynced_files, True)
        self.recorder.names_synced(self.recorder.syncing_names)

    def sync_failed(self, list done not None):
        """The data has to be rewritten before the next sync: the kernel may consider it clean."""
        unsynced_ended(&self.unsynced_files, False)
        self.unsynced_records += 1

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
        close_written(self)
        file_close(&self.reading)
        if self.ids is not None:
            self.ids.close_file()
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
            self._keep_end()
        self._rest()
        wake_readers(self)
        self.syncer.finish(self)

    cdef void _keep_end(self) noexcept:
        """Records the end of the last segment, so that the next start need not scan for it. It scans if this fails."""
        cdef Segment *last = segments_last(&self.segments)
        if self.manifest.end_size == 0 or self.manifest.end != last.end:
            if self.ready_to > last.position and segment_trim(self.c_folder, last) != 0:
                return
            self.manifest.end_size = self.manifest.end_position = last.position
            self.manifest.end = last.end
            self.manifest.end_due_ns = last.due_ns
            self.manifest.end_time_ns = last.time_ns
            manifest_write(self.c_folder, &self.manifest)
            self.recorder.names += 1

    def delete(self):
        """Forgets everything, and removes the files."""
        if self.closed:
            return
        self.closed = True
        self.owner = None
        losses_forgotten(self)
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
        return self.writing is not NULL or self.recorder.running or self.recorder.compacting

    @property
    def errno(self) -> int:
        """Of the last write of records or of the journal; 0: both succeeded."""
        return self.write_error or self.recorder.error


cdef tuple bounds_of(const Segment *segment):
    return segment.first, segment.end, segment.position, segment.salt


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
