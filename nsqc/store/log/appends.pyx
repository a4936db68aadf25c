"""Appends to a log on the loop. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport close

from nsqc.store.disk.syscalls cimport io_write_ready
from nsqc.store.log.format cimport ENTRY_BYTES, INDEX_HEAD_BYTES, TIME_SHIFT
from nsqc.store.log.jobs cimport Piece, buf_free
from nsqc.store.log.openfiles cimport stays_open, taken_back, was_closed
from nsqc.store.log.segments cimport segments_add

cdef enum:
    BLOCK_BYTES = 4096          # of a file system
    PUT_OFF_BYTES = 16384       # more records take longer to send than the entries to write


cdef void append_begin(AppendJob *job, Segments *segments, bint ends, SegmentFiles *files) noexcept:
    cdef Segment *last = &segments.items[segments.count - 1] if segments.count else NULL
    job.dat = job.idx = -1
    job.opens = True
    if last is NULL or ends:
        job.fresh = True
        job.last.first = job.offset
        if last is not NULL:
            job.least_ns = last.base_ns + ((<int64_t> last.time) << TIME_SHIFT)
        files_close(files)
        return
    job.last.first = last.first
    job.last.records = last.end - last.first
    job.last.bytes = last.bytes
    job.last.due_bytes = last.due_bytes
    job.last.base_ns = last.base_ns
    job.last.time = last.time
    was_closed((files.dat >= 0) + (files.idx >= 0))
    job.dat = files.dat
    job.idx = files.idx
    job.opens = job.dat < 0 or job.idx < 0
    files.dat = files.idx = -1


cdef Segment *append_enter(AppendJob *job, Segments *segments, int64_t wall_ns) noexcept:
    cdef Segment segment
    cdef Segment *last = NULL
    cdef Piece *piece
    cdef int64_t index
    for index in range(job.count):
        piece = &job.pieces[index]
        if index == 0 and not job.fresh:
            last = &segments.items[segments.count - 1]
        else:
            memset(&segment, 0, sizeof(segment))
            segment.first = segment.end = piece.first
            segments_add(segments, &segment)
            last = &segments.items[segments.count - 1]
        segments.bytes += piece.bytes - last.bytes
        last.end = piece.first + piece.records
        last.bytes = piece.bytes
        last.due_bytes = piece.due_bytes
        last.base_ns = piece.base_ns
        last.time = piece.time
        last.last_ns = wall_ns
    return last


cdef void append_free(AppendJob *job) noexcept:
    buf_free(&job.out)
    buf_free(&job.due)
    free(job.pieces)
    free(job.c_entries)
    free(job.behind)
    free(job)


cdef bint is_plain_append(AppendJob *job) noexcept:
    return not job.fresh and not job.syncs and job.last.bytes + job.out.length <= job.max_file


cdef bint is_at_hand(AppendJob *job) noexcept:
    return (job.dat >= 0 and job.idx >= 0 and io_write_ready(job.dat, job.last.bytes)
            and io_write_ready(job.idx, INDEX_HEAD_BYTES + job.last.records * ENTRY_BYTES))


cdef bint may_put_off(AppendJob *job) noexcept:
    cdef int64_t at = (INDEX_HEAD_BYTES + job.last.records * ENTRY_BYTES) % BLOCK_BYTES
    return (is_plain_append(job) and not job.opens and job.due.length == 0 and job.out.length <= PUT_OFF_BYTES
            and 0 < at and at + job.out.records * ENTRY_BYTES <= BLOCK_BYTES)


cdef void append_left(AppendJob *job, Segments *segments) noexcept:
    cdef Segment *last = &segments.items[segments.count - 1]
    segments.bytes += job.last.bytes - last.bytes
    last.end = job.last.first + job.last.records
    last.bytes = job.last.bytes
    last.time = job.last.time


cdef int64_t most_pieces(int64_t length, int64_t max_file) noexcept:
    """Of two in a row, each begun because a batch did not fit into the one before, the records are more than one can
    have."""
    return 3 + 2 * (length // max(max_file, <int64_t> 1))


# ---------------------------------------------------------------------- descriptors

cdef void files_close(SegmentFiles *files) noexcept:
    was_closed((files.dat >= 0) + (files.idx >= 0))
    if files.dat >= 0:
        close(files.dat)
    if files.idx >= 0:
        close(files.idx)
    files.dat = files.idx = -1


cdef void files_keep(SegmentFiles *files, AppendJob *job, bint closed) noexcept:
    was_taken_back(job)
    if closed or not stays_open((job.dat >= 0) + (job.idx >= 0)):
        job_files_close(job)
        return
    files.dat = job.dat
    files.idx = job.idx


cdef void was_taken_back(AppendJob *job) noexcept:
    if job.waits:
        taken_back(2)
        job.waits = False


cdef void job_files_close(AppendJob *job) noexcept:
    was_taken_back(job)
    if job.dat >= 0:
        close(job.dat)
    if job.idx >= 0:
        close(job.idx)
    job.dat = job.idx = -1
