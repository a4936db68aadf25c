"""The write side of a disk queue. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.clock cimport monotonic_ns
from nsqc.store.disk.filejobs cimport run_write
from nsqc.store.disk.pool cimport QUIET_NS, SHORT_BYTES
from nsqc.store.disk.segment cimport window_adopt
from nsqc.store.disk.state cimport count_operations, drop_block, is_drained, leave_file
from nsqc.store.disk.unacked cimport Unacked
from nsqc.store.disk.writebuf cimport (WriteBuf, count_records, data_moved, end_formers, forget_formers, out_body_bytes,
                                       out_clear, out_free, out_pop, spare_keep, spare_use)


cdef bint write_next(QueueState queue, bint partial) noexcept:
    cdef WriteJob *job
    cdef WriteBuf *out = next_out(queue)
    if queue.writing is not NULL or out.records == 0:
        return False
    job = <WriteJob *> calloc(1, sizeof(WriteJob))
    if job is NULL:
        queue.write_error = ENOMEM
        return False
    job.job.run = run_write
    job.c_prefix = PyBytes_AS_STRING(queue.prefix)
    job.out = out[0]
    memset(out, 0, sizeof(out[0]))
    if out is &queue.out:
        spare_use(&queue.spare, out)
    job.number = queue.write_number
    job.at = queue.write_at
    job.max_file = queue.max_file
    job.partial = partial
    job.job.bytes = job.out.length
    # After a while, a write may need a path lookup and a read of the file's end, from a busy disk.
    job.job.is_short = job.out.length <= SHORT_BYTES and monotonic_ns() - queue.wrote_ns < QUIET_NS
    queue.writing = job
    queue.io.submit(&job.job, queue)
    return True


cdef WriteBuf *next_out(QueueState queue) noexcept:
    """The buffer to write next."""
    return &queue.kept if queue.kept.records else &queue.out


cdef void finish_write(QueueState queue, WriteJob *job) noexcept:
    cdef int64_t records = job.out.records, body_bytes = 0
    cdef int error = job.error
    queue.wrote_ns = monotonic_ns()
    if job.stale:
        remove_stale(queue, job.number, job.end_number)
        free_write(job, &queue.unacked)
        return
    queue.writing = NULL
    queue.write_error = error
    if job.kept > job.out.taken:
        try:
            written(queue, job)
        except Exception as failure:
            queue.log.error("DISKQUEUE(%s): after a write - %r", queue.name, failure)
    if error:
        if queue.keeps:
            keep_unwritten(queue, job)
        else:
            body_bytes = out_body_bytes(&job.out)
            # Only these: records that came meanwhile are written next, and their waiters notified then.
            queue.depth -= records
    if not queue.closed:
        spare_keep(&queue.spare, &job.out)
    free_write(job, &queue.unacked)
    if queue.owner is not None:
        queue.owner.on_written(error, records, body_bytes)


cdef void remove_stale(QueueState queue, int64_t first, int64_t last) noexcept:
    """The queue was emptied during the write: removes its files."""
    cdef int64_t number
    try:
        queue.syncer.stale_writes -= 1
        queue.syncer.remove([(queue.path_of(number), "") for number in range(first, last + 1)])
    except Exception as failure:
        queue.log.error("DISKQUEUE(%s): %r", queue.name, failure)


cdef int written(QueueState queue, WriteJob *job) except -1:
    """Records are in files now: all of them, or with partial some."""
    cdef int64_t first = queue.write_number, records
    cdef bint drained = is_drained(queue)
    records = job.out.records if not job.error else count_records(&job.out, job.kept)
    queue.new_file = queue.new_file or job.at == 0 or job.end_number > first
    queue.write_number = job.end_number
    queue.write_at = job.end_at
    queue.committed += records
    end_formers(&job.out, &queue.unacked, job.kept)
    if queue.write_number > first:
        if queue.read_number == first:
            queue.window.limit = job.first_end
            queue.complete = True
            if queue.read_at == job.first_end:
                leave_file(queue)
    elif drained and job.out.taken == 0 and not job.error and queue.reading is NULL:
        # The reader has caught up with the writer: the buffer becomes the block, without reading the file.
        drop_block(queue)
        window_adopt(&queue.window, job.out.c_data, job.out.room)
        queue.window.start = job.at
        queue.window.length = job.out.length
        queue.window.limit = queue.block_end = job.end_at
        data_moved()
        job.out.c_data = NULL
        job.out.room = 0
    if job.error:
        job.out.taken = job.kept
        job.out.records -= records
    count_operations(queue, records)
    return 0


cdef void keep_unwritten(QueueState queue, WriteJob *job) noexcept:
    """After a failed write, its records come first again. Needs no memory, since lack of memory may be the cause."""
    queue.kept = job.out
    memset(&job.out, 0, sizeof(job.out))


cdef Message *pop_buffer(QueueState queue, uint16_t *attempts) noexcept:
    cdef WriteBuf *out = next_out(queue)
    cdef Message *message
    if queue.writing is not NULL or out.records == 0:
        return NULL
    message = out_pop(out, attempts, &queue.place)
    if message is not NULL:
        queue.depth -= 1
    return message


cdef int64_t discard_buffers(QueueState queue, int64_t *body_bytes) noexcept:
    cdef int64_t records = queue.kept.records + queue.out.records
    if body_bytes is not NULL:
        body_bytes[0] += out_body_bytes(&queue.kept) + out_body_bytes(&queue.out)
    queue.depth -= records
    forget_formers(&queue.kept, &queue.unacked)
    out_free(&queue.kept)
    forget_formers(&queue.out, &queue.unacked)
    out_clear(&queue.out)
    return records


cdef void free_write(WriteJob *job, Unacked *unacked) noexcept:
    forget_formers(&job.out, unacked)
    out_free(&job.out)
    free(job)
