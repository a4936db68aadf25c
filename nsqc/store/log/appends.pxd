# An append to a log on the loop: its job is made from the table of segments, and what it has written is entered there.
# jobs.pxd has what a thread does with it.

from libc.stdint cimport int64_t
from nsqc.store.log.jobs cimport AppendJob
from nsqc.store.log.segments cimport Segment, Segments


cdef struct SegmentFiles:
    int dat, idx            # descriptors of the last segment; -1: closed

# Says which segment it begins with. ends: the last one has ended. The job has the files from then on.
cdef void append_begin(AppendJob *job, Segments *segments, bint ends, SegmentFiles *files) noexcept
# Enters what was written; the last segment. There has to be room for most_pieces() more.
cdef Segment *append_enter(AppendJob *job, Segments *segments, int64_t wall_ns) noexcept
cdef void append_free(AppendJob *job) noexcept
# Whether it only adds to a segment, and syncs nothing.
cdef bint is_plain_append(AppendJob *job) noexcept
# Whether the page cache has what it needs: then a plain append does not wait for a disk that is busy.
cdef bint is_at_hand(AppendJob *job) noexcept
# Whether its index entries may be written once its records were delivered: they need no new block of the disk, which
# could be full.
cdef bint may_put_off(AppendJob *job) noexcept
# Those entries could not be written: what was entered counts no more, and its offsets are left out.
cdef void append_left(AppendJob *job, Segments *segments) noexcept
cdef int64_t most_pieces(int64_t length, int64_t max_file) noexcept     # segments that so many bytes may begin

cdef void files_close(SegmentFiles *files) noexcept
cdef void files_keep(SegmentFiles *files, AppendJob *job, bint closed) noexcept     # the job's; closed: the log is
cdef void job_files_close(AppendJob *job) noexcept
