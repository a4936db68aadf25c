# The state of a disk queue: positions, buffers, and the durable part. writing.pxd, reading.pxd and damage.pxd are
# functions on it; DiskQueue (queue.pxd) is the interface for backlogs.
#
# Records, in order: the files from (read_number, read_at) to (write_number, write_at), then the buffer being written,
# then the one being filled. Positions move only after a successful write. depth counts all parts. The read position
# never rests at the end of a file that is no longer written to: it then becomes the start of the next
# one.
#
# The positions on disk may lag: if tracks is set, they stay at the oldest record that was handed out without a done()
# yet; and so do the files.

from libc.stdint cimport int64_t
from nsqc.store.disk.filejobs cimport ReadJob, WriteJob
from nsqc.store.disk.pool cimport IoPool
from nsqc.store.disk.segment cimport Block, Window
from nsqc.store.disk.unacked cimport Place, Unacked
from nsqc.store.disk.writebuf cimport Spare, WriteBuf
from nsqc.store.seams cimport LoopWork, StoreOwner


cdef class QueueState(LoopWork):
    cdef readonly object name           # TOPIC or TOPIC:CHANNEL
    cdef readonly object folder         # of the files
    cdef object __weakref__
    cdef readonly int64_t depth         # waiting messages; above 0 while any wait
    cdef readonly int64_t read_number, read_at
    cdef readonly int64_t write_number, write_at
    cdef int64_t max_file               # size at which a new file starts
    cdef int64_t max_record             # largest record, bytes; larger ones count as damage
    cdef bytes prefix                   # of the paths of data files
    cdef IoPool io
    cdef object syncer                  # nsqc.store.disk.syncer.Syncer
    cdef object log                     # nsqc.log.Log
    cdef StoreOwner owner               # its backlog; None: none
    cdef readonly bint keeps            # records of a failed write stay in the buffer; otherwise they are rolled back
    cdef readonly bint closed
    cdef readonly bint deleted

    # Writing.
    cdef WriteBuf out                   # being filled
    cdef WriteBuf kept                  # before it: records of a failed write, written next
    cdef Spare spare                    # for the next out
    cdef WriteJob *writing              # in progress; NULL: none
    cdef readonly int write_error       # errno of the last write; 0: success
    cdef int64_t wrote_ns               # monotonic: when the last write ended
    cdef int64_t committed              # records written so far

    # Reading.
    cdef ReadJob *reading               # in progress; NULL: none
    cdef Window window                  # the current block
    cdef int64_t block_end              # after its last whole record; -1: none
    cdef int64_t want                   # size of the next block
    cdef Block ahead                    # prefetched; answer 0: none
    cdef int64_t ahead_number
    cdef bint ahead_whole               # its window.limit is the end of the file
    cdef bint complete                  # the read file is no longer written to, and window.limit is its end
    cdef bint waiting                   # pop() had nothing to return, but will
    cdef int64_t damaged_number         # of the last file found damaged; -1: none
    cdef bint damaged_linked            # it already has its .bad name
    cdef readonly int read_error        # errno while the files are unreadable; pop() retries
    cdef int64_t retry_ns               # monotonic: not before

    cdef readonly bint tracks           # done() is called for each record that pop() returned with a place
    cdef Unacked unacked                # records handed out
    cdef Place *place                   # of the record last returned by pop(); NULL: it was not in a file

    # Syncs.
    cdef readonly int64_t unsynced      # reads and writes since the last sync started
    cdef readonly list done_files       # (path, new path, or "" to remove it): files that the next sync may remove
    cdef list done_numbers              # of done_files: their file numbers; -1: not numbered
    cdef readonly list copies           # queues whose data must be durable before these positions
    cdef int64_t sync_every
    cdef bint sync_asked                # a sync was requested since the last one started
    cdef readonly bint active           # read or written since the last idle check
    cdef bint new_file                  # since the last sync started
    cdef bint syncing_folder            # the sync in progress also covers new files
    cdef bint rewrite                   # a sync has failed: its data must be rewritten before the next sync
    cdef int64_t synced_number, synced_at       # end of durable data
    cdef int64_t syncing_number, syncing_at     # the same after the sync in progress succeeds

    cpdef str path_of(self, int64_t number)     # of a data file


cdef inline bint is_drained(QueueState queue) noexcept:
    # All records in the files have been read.
    return queue.read_number == queue.write_number and queue.read_at >= queue.write_at


cdef inline int64_t buffered_records(QueueState queue) noexcept:
    # Records that are not in a file yet.
    return (queue.kept.records + queue.out.records
            + (queue.writing.out.records if queue.writing is not NULL else 0))


cdef inline int64_t disk_bytes(QueueState queue) noexcept:
    # Bytes of the waiting records, as far as positions tell: files before the write file count as full.
    return ((queue.write_number - queue.read_number) * queue.max_file + queue.write_at - queue.read_at
            + queue.kept.length + queue.out.length
            + (queue.writing.out.length if queue.writing is not NULL else 0)) if queue.depth > 0 else 0


cdef inline void count_operations(QueueState queue, int64_t operations) noexcept:
    # Counts reads and writes, and requests the sync that is due after a number of them.
    queue.active = True
    if queue.unsynced == 0:
        queue.syncer.began(queue)
    queue.unsynced += operations
    if queue.unsynced >= queue.sync_every and not queue.sync_asked:
        queue.sync_asked = True
        queue.syncer.start(queue)


cdef void drop_block(QueueState queue) noexcept     # also forgets the known end of the read file
cdef void drop_ahead(QueueState queue) noexcept
cdef int leave_file(QueueState queue) except -1     # the read file has been read to its end: switch to the next one
