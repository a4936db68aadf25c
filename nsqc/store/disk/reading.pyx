"""The read side of a disk queue. See the .pxd."""

from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.clock cimport monotonic_ns
from nsqc.store.disk.damage cimport cannot_read, correct_depth, retry_later, skip_damage, skip_missing
from nsqc.store.disk.filejobs cimport run_read
from nsqc.store.disk.segment cimport Block, window_free
from nsqc.store.disk.state cimport drop_ahead, drop_block, is_drained, leave_file


cdef bint next_block(QueueState queue) noexcept:
    cdef int64_t number, at
    while True:
        number, at = queue.read_number, queue.read_at
        if is_drained(queue):
            correct_depth(queue)
            return False
        if queue.ahead.answer == 1 and queue.ahead_number == number and queue.ahead.begin == at:
            queue.complete = queue.complete or number < queue.write_number and queue.ahead_whole
            adopt(queue, &queue.ahead)
            memset(&queue.ahead, 0, sizeof(queue.ahead))
            read_ahead(queue)
            return True
        if queue.closed:
            return False
        if queue.reading is NULL:
            if queue.read_error and queue.io.threads and monotonic_ns() < queue.retry_ns:
                return False
            begin_read(queue, number, at, False)
        if queue.read_at < queue.block_end:
            return True
        if queue.reading is not NULL:
            queue.waiting = True
            return False
        if queue.read_error:
            return False


cdef void begin_read(QueueState queue, int64_t number, int64_t at, bint probes) noexcept:
    cdef ReadJob *job = <ReadJob *> calloc(1, sizeof(ReadJob))
    if job is NULL:
        retry_later(queue, ENOMEM)
        return
    job.job.run = run_read
    job.c_prefix = PyBytes_AS_STRING(queue.prefix)
    job.number = number
    job.at = at
    job.probes = probes
    job.limit = queue.write_at if number == queue.write_number else -1
    job.max_record = queue.max_record
    job.want = queue.want
    job.last_number = queue.write_number
    job.last_at = queue.write_at
    job.committed = queue.committed
    job.counts = number == queue.read_number and number != queue.damaged_number
    queue.active = True
    queue.reading = job
    queue.io.submit(&job.job, queue)


cdef void finish_read(QueueState queue, ReadJob *job) noexcept:
    cdef bint waited = queue.waiting
    if job.stale:
        free_read(job)
        return
    queue.reading = NULL
    try:
        if job.probes and not waited and job.block.answer == 1 and job.block.begin == job.at:
            pass        # no damage
        elif job.number == queue.read_number and job.at == queue.read_at and queue.read_at >= queue.block_end:
            use_block(queue, job)
        elif job.block.answer == 1 and job.block.begin == job.at:
            keep_ahead(queue, job)
    except Exception as failure:
        queue.log.error("DISKQUEUE(%s): cannot read %s - %r", queue.name, queue.path_of(job.number), failure)
        drop_block(queue)
        retry_later(queue, EIO)
    free_read(job)
    if queue.owner is None or queue.reading is not NULL:
        return
    if queue.read_error:
        queue.waiting = False
        queue.owner.on_unreadable()
    elif waited:
        queue.waiting = False
        queue.owner.on_readable()


cdef int use_block(QueueState queue, ReadJob *job) except -1:
    """Accepts the block read at the read position."""
    cdef Block *block = &job.block
    if (not job.counts and job.number != queue.damaged_number
            and (block.answer == 0 or block.answer == -ENOENT or block.begin > job.at)):
        # It was prefetched, and there is damage: read it again, and count the remaining records.
        begin_read(queue, job.number, job.at, False)
        return 0
    if block.answer == -ENOENT:
        skip_missing(queue, job)
        return 0
    if block.answer < 0:
        cannot_read(queue, -block.answer)
        return 0
    queue.read_error = 0
    if job.limit < 0 and not queue.complete:
        queue.complete = True
    if queue.complete and job.number < queue.write_number and job.limit >= 0:
        # It was the write file when the read started; its end is known by now.
        block.window.limit = max(block.window.limit, queue.window.limit)
    if block.answer == 0:
        if job.at < block.window.limit:
            skip_damage(queue, block.window.limit, job)
        queue.window.limit = block.window.limit
        queue.read_at = block.window.limit
        if queue.complete or queue.read_number < queue.write_number:
            leave_file(queue)
        return 0
    if block.begin > queue.read_at:
        skip_damage(queue, block.begin, job)
        queue.read_at = block.begin
    adopt(queue, block)
    queue.want = min(4 * queue.want, MOST_WANT)
    read_ahead(queue)
    return 0


cdef void adopt(QueueState queue, Block *block) noexcept:
    """Makes this the current block; takes over its memory."""
    cdef int64_t limit = queue.window.limit
    window_free(&queue.window)
    queue.window = block.window
    if queue.complete and limit > queue.window.limit:
        queue.window.limit = limit
    queue.block_end = block.end
    memset(&block.window, 0, sizeof(block.window))


cdef void keep_ahead(QueueState queue, ReadJob *job) noexcept:
    """Keeps a prefetched block."""
    drop_ahead(queue)
    queue.ahead = job.block
    queue.ahead_number = job.number
    queue.ahead_whole = job.limit < 0
    memset(&job.block, 0, sizeof(job.block))


cdef void read_ahead(QueueState queue) noexcept:
    """Prefetches the next block, once blocks have their full size."""
    cdef int64_t number = queue.read_number, at = queue.block_end
    if queue.want < MOST_WANT or queue.reading is not NULL or queue.io.threads == 0:
        return
    if queue.complete and at >= queue.window.limit:
        number += 1
        at = 0
    if number < queue.write_number or (number == queue.write_number and at + MOST_WANT <= queue.write_at):
        drop_ahead(queue)
        begin_read(queue, number, at, False)


cdef void free_read(ReadJob *job) noexcept:
    window_free(&job.block.window)
    free(job)
