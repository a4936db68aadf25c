"""Writes to a log. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.disk.pool cimport QUIET_NS, SHORT_BYTES
from nsqc.store.disk.syscalls cimport io_write_ready
from nsqc.store.log.append cimport Piece, append_close, append_free, run_append
from nsqc.store.log.buffer cimport Buffer, buffer_free
from nsqc.store.log.delays cimport delays_add
from nsqc.store.log.frame cimport RECORD_SIZE, Frame, frame_load, frame_records
from nsqc.store.log.frames cimport frames_close, frames_free
from nsqc.store.log.index cimport index_note
from nsqc.store.log.logstate cimport next_appended, wake_readers
from nsqc.store.log.openfiles cimport close_counted
from nsqc.store.log.seal cimport seal_begin
from nsqc.store.log.segmenthead cimport FRAMES_AT, lost_before
from nsqc.store.log.segments cimport Segment, segments_add, segments_last, segments_reserve
from nsqc.store.log.unsynced cimport unsynced_appended, unsynced_failed, unsynced_take

cdef enum:
    MOST_SPARE = 1048576        # most memory kept for the next buffer


cdef void write_next(LogState log) noexcept:
    cdef AppendJob *job
    if log.frames.records == 0:
        log.commit.one_ended(0)
        return
    frames_close(&log.frames, log.guids)
    job = new_job(log)
    if job is NULL:
        refuse(log, ENOMEM)
        log.commit.one_ended(ENOMEM)
        return
    log.commit.syncs = log.syncs
    log.writing = job
    log.io.submit(&job.job, log)


cdef AppendJob *new_job(LogState log) noexcept:
    """NULL: no memory."""
    cdef AppendJob *job = <AppendJob *> calloc(1, sizeof(AppendJob))
    cdef Segment *last
    if job is NULL:
        return NULL
    job.fd = job.ids.fd = -1
    job.syncs = log.syncs
    if (unsynced_take(&log.unsynced_files, &log.segments, job, log.ends) < 0
            or segments_reserve(&log.segments, most_pieces(log.frames.out.length, log.max_file)) < 0):
        append_free(job)
        return NULL
    job.job.run = run_append
    job.c_folder = PyBytes_AS_STRING(log.c_folder)
    job.offset = next_appended(log) - log.frames.records
    job.records = log.frames.records
    job.out = log.frames.out
    memset(&log.frames.out, 0, sizeof(Buffer))
    log.frames.records = 0
    job.wall_ns = log.clock.wall
    job.max_file = log.max_file
    job.manifest = log.manifest
    job.makes_folder = not log.recorder.exists
    job.syncs_parent = not log.recorder.rooted
    job.syncs_names = log.recorder.synced_names < log.recorder.names
    job.names = log.recorder.names
    last = segments_last(&log.segments)     # its current address: making room may have moved it
    job.fresh = last is NULL or log.ends
    if last is not NULL:
        take_last(log, job, last)
    job.last.head.before_records += log.lost
    job.job.bytes = job.out.length
    if log.ids is not None and log.ids.is_due():
        log.ids.take(&job.ids, log.manifest.log_id, job.offset, log.clock.wall)
    # Publishers wait for it: handing it to a thread and back would take longer than the write itself.
    job.job.is_short = (
        job.out.length <= SHORT_BYTES and not job.fresh and not job.syncs and job.manifest.end_size == 0
        and (job.ids.out.length == 0 or job.ids.position > 0)
        and last.position - FRAMES_AT + job.out.length <= job.max_file
        and (log.clock.monotonic - log.wrote_ns < QUIET_NS or job.fd >= 0 and io_write_ready(job.fd, last.position)))
    return job


cdef void take_last(LogState log, AppendJob *job, const Segment *last) noexcept:
    """Fills in the job's fields about the last written segment, and its file."""
    job.last.head.sequence = last.sequence
    job.last.head.first = last.first
    job.last.head.salt = last.salt
    job.last.head.before_records = last.before
    job.last.position = last.position
    job.last.end = last.end
    job.last.due_ns = last.due_ns
    job.last.time_ns = last.time_ns
    if job.fresh:
        close_written(log)
        return
    job.synced = log.durable_to
    job.ready = log.ready_to
    job.fd = log.fd
    log.fd = -1


cdef void close_written(LogState log) noexcept:
    close_counted(&log.fd)


cdef inline int64_t most_pieces(int64_t length, int64_t max_file) noexcept:
    """The most segments that a write may begin: a batch that does not fit begins a segment, so the frames of two
    consecutive segments exceed the limit of one."""
    return 3 + 2 * (length // max(max_file, <int64_t> 1))


cdef void refuse(LogState log, int error) noexcept:
    """Drops the waiting records, and reports the error to their publishers."""
    cdef int64_t records = log.frames.records, body_bytes = bodies_of(&log.frames.out)
    frames_free(&log.frames)
    if log.ids is not None:
        log.ids.drop()
    log.write_error = error
    if log.owner is not None:
        log.owner.on_written(error, records, body_bytes)


cdef int64_t bodies_of(const Buffer *out) noexcept:
    """Bytes of the bodies in frames."""
    cdef int64_t at = 0, found = 0
    cdef Frame frame
    while at < out.length:
        frame_load(out.c_data + at, &frame)
        found += frame_records(&frame) - frame.records * RECORD_SIZE
        at += frame.length
    return found


cdef void finish_write(LogState log, AppendJob *job) noexcept:
    cdef int error = job.error
    log.writing = NULL
    log.wrote_ns = log.clock.monotonic
    log.write_error = error
    if log.ids is not None:
        log.ids.ended_with(&job.ids, error)
    if error == 0:
        try:
            enter(log, job)
        except Exception as failure:
            log.log.error("LOG(%s): after a write - %r", log.name, failure)
        keep_file(log, job)
        take_tail(log, job)
        if log.owner is not None:
            log.owner.on_appended(job.records)
            wake_readers(log)
    else:
        log.ends = True
        if job.earlier_failed:
            unsynced_failed(&log.unsynced_files)
        append_close(job)
        if log.owner is not None:
            log.owner.on_written(error, job.records, bodies_of(&job.out))
    append_free(job)
    log.commit.one_ended(error)    # answers publishers; consumers first, who wait longer


cdef void keep_file(LogState log, AppendJob *job) noexcept:
    if log.closed:
        append_close(job)
    log.fd = job.fd


cdef int enter(LogState log, AppendJob *job) except -1:
    """Enters the written records into the table of segments and into the index."""
    cdef Segment *last = segments_last(&log.segments)
    cdef int64_t index
    for index in range(job.count):
        if job.pieces[index].head.sequence == 0:
            continue        # there was none yet
        if job.pieces[index].fresh:
            last = add_segment(log, &job.pieces[index])
        note(log, job, &job.pieces[index])
        log.segments.bytes += job.pieces[index].position - last.position
        last.position = job.pieces[index].position
        last.end = job.pieces[index].end
        last.due_ns = job.pieces[index].due_ns
        last.time_ns = job.pieces[index].time_ns
    unsynced_appended(&log.unsynced_files, job.syncs, last.first)
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
        log.unsynced_records += job.records
        if log.unsynced_records >= log.syncer.every:
            log.syncer.start_rested(log)
    return 0


cdef Segment *add_segment(LogState log, const Piece *piece) noexcept:
    cdef Segment segment
    cdef Segment *last = segments_last(&log.segments)
    memset(&segment, 0, sizeof(segment))
    segment.first = segment.end = piece.head.first
    segment.position = FRAMES_AT
    segment.before = piece.head.before_records
    segment.lost = lost_before(&piece.head)
    segment.sequence = piece.head.sequence
    segment.salt = piece.head.salt
    if last is not NULL:
        seal_begin(log.io, log.c_folder, last, &log.index)
    memset(&log.index, 0, sizeof(log.index))
    log.index.time_ns = piece.head.before_time_ns
    segments_add(&log.segments, &segment)
    return segments_last(&log.segments)


cdef void note(LogState log, AppendJob *job, const Piece *piece) noexcept:
    cdef int64_t at = piece.out_begin, position = piece.position - (piece.out_end - piece.out_begin)
    cdef Frame frame
    while at < piece.out_end:
        frame_load(job.out.c_data + at, &frame)
        index_note(&log.index, &frame, position)
        if frame.delays:
            delays_add(&log.delays, job.out.c_data + at, &frame, INT64_MAX, log.longest_delay_ns, log.clock)
        at += frame.length
        position += frame.length


cdef void take_tail(LogState log, AppendJob *job) noexcept:
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
