"""Writes to a log. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.disk.pool cimport QUIET_NS, SHORT_BYTES
from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.log.appends cimport (append_begin, append_enter, append_free, append_left, files_keep, is_at_hand,
                                     is_plain_append, job_files_close, may_put_off, most_pieces)
from nsqc.store.log.delays cimport delays_add, due_rebase
from nsqc.store.log.jobs cimport buf_free, run_append, run_entries
from nsqc.store.log.logstate cimport next_appended, wake_readers
from nsqc.store.log.segments cimport Segment, segments_reserve
from nsqc.store.log.unsynced cimport unsynced_appended, unsynced_failed, unsynced_take

cdef enum:
    MOST_SPARE = 1048576        # memory that is kept for the next buffer


cdef bint write_next(LogState log) noexcept:
    cdef AppendJob *job = <AppendJob *> calloc(1, sizeof(AppendJob))
    cdef bint has_room = job is not NULL
    if has_room:
        job.syncs = log.syncs
        has_room = (unsynced_take(&log.unsynced_files, &log.segments, job, log.ends) == 0
                    and segments_reserve(&log.segments, most_pieces(log.out.length, log.max_file)) == 0)
    if not has_room:
        if job is not NULL:
            append_free(job)
        refuse(log, ENOMEM)
        return False
    job.job.run = run_append
    job.left_end = log.left_end
    job.c_folder = PyBytes_AS_STRING(log.c_folder)
    job.offset = next_appended(log) - log.out.records
    job.out = log.out
    job.due = log.due
    memset(&log.out, 0, sizeof(log.out))
    memset(&log.due, 0, sizeof(log.due))
    job.max_file = log.max_file
    job.makes_folder = not log.recorder.exists
    job.syncs_parent = not log.recorder.rooted
    job.syncs_names = log.recorder.synced_names < log.recorder.names
    job.names = log.recorder.names
    job.id = log.recorder.id
    append_begin(job, &log.segments, log.ends, &log.files)
    job.job.bytes = job.out.length
    # Publishers wait for it: handing it to a thread and back would take longer than the write.
    job.job.is_short = job.job.is_urgent = (
        job.out.length <= SHORT_BYTES and is_plain_append(job)
        and (log.clock.monotonic - log.wrote_ns < QUIET_NS or is_at_hand(job)))
    job.puts_off = log.commit.schedule.sends and may_put_off(job) and log.io.runs_here(&job.job)
    log.writing = job
    log.io.submit(&job.job, log)
    return True


cdef void refuse(LogState log, int error) noexcept:
    """What waits to be written is not: whoever has published it is told so."""
    cdef int64_t records = log.out.records, body_bytes = log.out.length - records * HEAD_BYTES
    buf_free(&log.out)
    buf_free(&log.due)
    log.write_error = error
    if log.owner is not None:
        log.owner.on_write_failed(error, records, body_bytes)


cdef void finish_write(LogState log, AppendJob *job) noexcept:
    cdef int64_t records = job.out.records, body_bytes
    cdef int error = job.error, before = log.write_error
    log.writing = NULL
    log.wrote_ns = log.clock.monotonic
    log.write_error = error
    if error == 0:
        try:
            take_pieces(log, job)
        except Exception as failure:
            log.log.error("LOG(%s): after a write - %r", log.name, failure)
        if job.c_entries is NULL:
            files_keep(&log.files, job, log.closed)
        delays_add(&log.delays, job.due.c_data, job.due.length, INT64_MAX, log.longest_delay_ns, log.clock)
        take_tail(log, job)
    else:
        if job.spoilt or job.leaves:
            log.ends = True
        if job.leaves:
            log.left_end = max(log.left_end, job.offset + records)
        if job.behind_failed:
            unsynced_failed(&log.unsynced_files)
        job_files_close(job)
        due_rebase(&log.due, records)
    body_bytes = job.out.length - records * HEAD_BYTES
    if job.c_entries is not NULL:
        log.ending = job
        log.commit.schedule.unended.append(log)
    else:
        append_free(job)
    if log.owner is not None:
        if error:
            log.owner.on_write_failed(error, records, body_bytes)
        elif before:
            log.owner.on_write_healed()
    if error == 0 and log.owner is not None:
        log.owner.on_appended(records)
        wake_readers(log)
    if log.ending is NULL:
        log.commit.one_ended(error)    # answers publishers; consumers come first, who wait longer
    elif not log.commit.schedule.sends:
        log.commit.schedule.end_writes()


cdef void finish_entries(LogState log) noexcept:
    cdef AppendJob *job = log.ending
    cdef int error
    if job is NULL:
        return
    log.ending = NULL
    error = run_entries(job)
    if error:
        # Who consumes has the messages, and who has published them is told that they are not in the log.
        append_left(job, &log.segments)
        log.ends = True
        log.write_error = error
        if log.owner is not None:
            log.owner.on_write_failed(error, 0, 0)
    files_keep(&log.files, job, log.closed)
    append_free(job)
    try:
        sync_if_due(log)
    except Exception as failure:
        log.log.error("LOG(%s): after a write - %r", log.name, failure)
    log.commit.one_ended(error)


cdef int take_pieces(LogState log, AppendJob *job) except -1:
    """Enters what was written into the table of segments."""
    cdef Segment *last = append_enter(job, &log.segments, log.clock.wall)
    unsynced_appended(&log.unsynced_files, job.syncs, last.first)
    log.recorder.exists = True
    log.recorder.names += job.made_names
    if job.synced_names:
        log.recorder.names_synced(job.names)
    log.ends = False
    log.left_end = 0
    log.active = True
    log.recorder.wrote()
    if not job.syncs:
        log.unsynced_records += job.out.records
    if job.c_entries is NULL:
        sync_if_due(log)
    return 0


cdef int sync_if_due(LogState log) except -1:
    if log.unsynced_records >= log.syncer.every:
        log.syncer.start_rested(log)
    return 0


cdef void take_tail(LogState log, AppendJob *job) noexcept:
    """What was written last can be read from memory."""
    if 0 < log.tail.room <= MOST_SPARE and log.spare.c_data is NULL:
        log.spare = log.tail
        log.spare.length = log.spare.records = 0
        memset(&log.tail, 0, sizeof(log.tail))
    buf_free(&log.tail)
    log.tail_first = job.offset
    log.tail_serial += 1
    log.next = log.resume_at = job.offset + job.out.records
    if not log.held:
        log.visible = log.next
    log.tail = job.out
    memset(&job.out, 0, sizeof(job.out))
