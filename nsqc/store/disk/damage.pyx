"""Unreadable, missing and damaged files of a disk queue. See the .pxd."""

from libc.stdint cimport int64_t

import os

from nsqc.store.badfiles import keep_bad
from nsqc.store.clock cimport monotonic_ns
from nsqc.store.disk.filejobs cimport FEW_FILES
from nsqc.store.disk.index import queue_files
from nsqc.store.disk.state cimport buffered_records, count_operations, is_drained, leave_file

cdef enum:
    RETRY_NS = 200000000        # until a file that could not be read is read again


cdef int cannot_read(QueueState queue, int error) except -1:
    if queue.read_error != error:
        queue.log.error("DISKQUEUE(%s): cannot read %s - %s", queue.name, queue.path_of(queue.read_number),
                        os.strerror(error))
    retry_later(queue, error)
    return 0


cdef void retry_later(QueueState queue, int error) noexcept:
    queue.read_error = error
    queue.retry_ns = monotonic_ns() + RETRY_NS


cdef int skip_missing(QueueState queue, ReadJob *job) except -1:
    cdef int64_t missing = queue.read_number, following
    queue.read_error = 0
    end_write_file(queue)
    following = max(missing + 1, job.following if job.following else min(job.last_number, queue.write_number))
    if job.following == 0 and queue.write_number - missing > FEW_FILES:
        numbers = queue_files(queue.folder, queue.name)
        following = min([number for number in numbers if missing < number < queue.write_number] + [queue.write_number])
    if following == missing + 1:
        queue.log.error("DISKQUEUE(%s): %s is missing", queue.name, queue.path_of(missing))
    else:
        queue.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", queue.name, following - missing,
                        queue.path_of(missing))
    leave_file(queue)
    queue.read_number = following
    recount(queue, job)
    if queue.depth <= buffered_records(queue) and not is_drained(queue):
        queue.depth = buffered_records(queue) + 1   # not all files were counted; their messages must not be skipped
    return 0


cdef int skip_damage(QueueState queue, int64_t upto, ReadJob *job) except -1:
    # Reported once per file, with all later damage in it.
    if queue.damaged_number == queue.read_number:
        return 0
    end_write_file(queue)
    path = queue.path_of(queue.read_number)
    queue.damaged_number = queue.read_number
    queue.damaged_linked = keep_bad(path)
    queue.new_file = True
    queue.log.error("DISKQUEUE(%s): %s is damaged at %d: %d bytes are unreadable, %d intact messages follow; "
                    "kept as .bad", queue.name, path, queue.read_at, job.lost, job.here)
    recount(queue, job)
    return 0


cdef void end_write_file(QueueState queue) noexcept:
    """Makes writing switch to a new file: a damaged or missing one gets no more data, once no write is in progress."""
    if queue.read_number == queue.write_number and queue.writing is NULL:
        queue.window.limit = queue.write_at
        queue.complete = True
        queue.write_number += 1
        queue.write_at = 0
        queue.new_file = True


cdef void recount(QueueState queue, ReadJob *job) noexcept:
    """Sets depth after damage: the thread's count, and records written since."""
    queue.depth = job.here + job.later + queue.committed - job.committed + buffered_records(queue)
    count_operations(queue, 1)


cdef void correct_depth(QueueState queue) noexcept:
    cdef int64_t buffered = buffered_records(queue)
    if queue.depth != buffered:
        queue.log.error("DISKQUEUE(%s): the files have %d messages fewer than the positions recorded", queue.name,
                        queue.depth - buffered)
        queue.depth = buffered
        count_operations(queue, 1)
