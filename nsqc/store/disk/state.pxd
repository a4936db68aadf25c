# Where a disk queue stands: positions, buffers, and how much of it is durable. writing.pxd, reading.pxd and damage.pxd
# are functions on this; DiskQueue (queue.pxd) is what a backlog sees of it all.
#
# Order of what waits: the files from (read_number, read_at) to (write_number, write_at), then the buffer that is being
# written, then the one that is being filled. Positions move only when a write has succeeded. depth counts all parts.
# The read position never rests at the end of a file that is no longer written to: there, it is the beginning of the
# next one.
#
# The positions on disk may lag behind: if tracks is set, they stay at the oldest record that was handed out and that
# done() was not called for; and so do the files.

from libc.stdint cimport int64_t
from nsqc.store.disk.filejobs cimport ReadJob, WriteJob
from nsqc.store.disk.pool cimport IoPool, JobOwner
from nsqc.store.disk.segment cimport Block, Window
from nsqc.store.disk.unacked cimport Place, Unacked
from nsqc.store.disk.writebuf cimport Spare, WriteBuf


cdef class QueueWatcher:
    # Who is notified by a disk queue, always on the loop: its backlog.
    # A write has ended; if it failed: how many records and bytes of bodies were taken back.
    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept
    cdef void on_readable(self) noexcept        # pop() has more to return than the last time
    cdef void on_unreadable(self) noexcept      # see read_error
    cdef void check_rules(self) noexcept        # in the debug build, now and then


cdef class QueueState(JobOwner):
    cdef readonly object name           # TOPIC or TOPIC:CHANNEL
    cdef readonly object folder         # of the files
    cdef object __weakref__
    cdef readonly int64_t depth         # messages that wait; above 0 as long as any does
    cdef readonly int64_t read_number, read_at
    cdef readonly int64_t write_number, write_at
    cdef int64_t max_file               # bytes after which a new file begins
    cdef int64_t max_record             # bytes of a record; larger ones are damage
    cdef bytes prefix                   # of the paths of data files
    cdef IoPool io
    cdef object syncer                  # nsqc.store.disk.syncer.Syncer
    cdef object log                     # nsqc.log.Log
    cdef QueueWatcher watcher           # None: nobody
    cdef readonly bint keeps            # what could not be written stays in the buffer; else it is taken back
    cdef readonly bint closed
    cdef readonly bint deleted

    # Writing.
    cdef WriteBuf out                   # being filled
    cdef WriteBuf kept                  # before it: what could not be written, and is written next
    cdef Spare spare                    # for the next out
    cdef WriteJob *writing              # under way; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef int64_t wrote_ns               # monotonic: when the last write ended
    cdef int64_t committed              # records written so far

    # Reading.
    cdef ReadJob *reading               # under way; NULL: none
    cdef Window window                  # the block that records are taken from
    cdef int64_t block_end              # behind its last whole record; -1: there is none
    cdef int64_t want                   # bytes of the next block
    cdef Block ahead                    # read ahead; answer 0: nothing was
    cdef int64_t ahead_number
    cdef bint ahead_whole               # its window.limit is the end of the file
    cdef bint complete                  # the read file is no longer written to, and window.limit is its end
    cdef bint waiting                   # pop() had nothing to return, but will
    cdef int64_t damaged_number         # of the last file that was found damaged; -1: none
    cdef bint damaged_linked            # it has its name as .bad already
    cdef readonly int read_error        # errno while the files cannot be read; pop() tries again
    cdef int64_t retry_ns               # monotonic: not before

    cdef readonly bint tracks           # done() is called for each record that pop() hands out with a place
    cdef Unacked unacked                # records that are out
    cdef Place *place                   # of the record that pop() has handed out last; NULL: it was in no file

    # Syncs.
    cdef readonly int64_t unsynced      # reads and writes since the last sync began
    cdef readonly list done_files       # (path, new path, or "" to remove it): what the next sync may take away
    cdef list done_numbers              # of done_files: their file numbers; -1: they wait for nothing
    cdef readonly list copies           # queues whose data must be durable before these positions are
    cdef int64_t sync_every
    cdef bint sync_asked                # the syncer has been asked since the last sync began
    cdef readonly bint active           # read or written since the last idle check
    cdef bint new_file                  # since the last sync began
    cdef bint syncing_folder            # the sync under way is for new files as well
    cdef bint rewrite                   # a sync has failed: its data must be written again before it is synced
    cdef int64_t synced_number, synced_at       # up to where the data is durable
    cdef int64_t syncing_number, syncing_at     # the same once the sync under way has succeeded

    cpdef str path_of(self, int64_t number)     # of a data file


cdef inline bint is_drained(QueueState queue) noexcept:
    # All that is in the files has been read.
    return queue.read_number == queue.write_number and queue.read_at >= queue.write_at


cdef inline int64_t buffered_records(QueueState queue) noexcept:
    # Records that are in no file.
    return (queue.kept.records + queue.out.records
            + (queue.writing.out.records if queue.writing is not NULL else 0))


cdef inline int64_t disk_bytes(QueueState queue) noexcept:
    # Of the records that wait, as far as positions tell: files before the one that is written count as full.
    return ((queue.write_number - queue.read_number) * queue.max_file + queue.write_at - queue.read_at
            + queue.kept.length + queue.out.length
            + (queue.writing.out.length if queue.writing is not NULL else 0)) if queue.depth > 0 else 0


cdef inline void count_operations(QueueState queue, int64_t operations) noexcept:
    # Counts reads and writes, and asks for the sync that is due after so many of them.
    queue.active = True
    if queue.unsynced == 0:
        queue.syncer.began(queue)
    queue.unsynced += operations
    if queue.unsynced >= queue.sync_every and not queue.sync_asked:
        queue.sync_asked = True
        queue.syncer.start(queue)


cdef void drop_block(QueueState queue) noexcept     # and with it what was known of the end of the read file
cdef void drop_ahead(QueueState queue) noexcept
cdef int leave_file(QueueState queue) except -1     # the read file has been read to its end: on to the next one
