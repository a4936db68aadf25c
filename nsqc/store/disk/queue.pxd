# A disk queue in go-diskqueue's format: its state, reading, damage, writing.

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.store.disk.fileio cimport IoPool
from nsqc.store.disk.segment cimport Block, ReadJob, Spare, Window, WriteBuf, WriteJob
from nsqc.store.message cimport Message, Place, Unacked
from nsqc.store.work cimport LoopWork, StoreOwner


# ====================================================================== queue
# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and the positions in
# NAME.diskqueue.meta.dat.
#
# An IoPool's threads read and write the files, one read and one write per queue at a time; the loop only copies. A
# block read by a thread consists of whole, checked records. A written buffer becomes the block if the reader has read
# everything before it.
#
# Records, in order: the files from (read_number, read_at) to (write_number, write_at), then the buffer being written,
# then the one being filled. Positions move only after a successful write. depth counts all parts. The read position
# never rests at the end of a file that is no longer written to: it then becomes the start of the next
# one.
#
# The positions on disk may lag: if tracks is set, they stay at the oldest record that was handed out without a done()
# yet; and so do the files.

cdef class DiskQueue(LoopWork):
    cdef readonly str name        # TOPIC or TOPIC:CHANNEL
    cdef readonly str folder        # of the files
    cdef object __weakref__
    cdef readonly int64_t depth         # waiting messages; above 0 while any wait
    cdef readonly int64_t read_number, read_at
    cdef readonly int64_t write_number, write_at
    cdef int64_t max_file               # size at which a new file starts
    cdef int64_t max_record             # largest record, bytes; larger ones count as damage
    cdef bytes prefix                   # of the paths of data files
    cdef IoPool io
    cdef object syncer                  # nsqc.store.disk.manager.Syncer
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
    cdef readonly list done_files    # type: Done; (path, new path, or "" to remove it), for the next sync
    cdef list done_numbers              # of done_files: their file numbers; -1: not numbered
    cdef readonly list copies    # type: list[DiskQueue]; queues whose data must be durable before these positions
    cdef int64_t sync_every
    cdef bint sync_asked                # a sync was requested since the last one started
    cdef readonly bint active           # read or written since the last idle check
    cdef bint new_file                  # since the last sync started
    cdef bint syncing_folder            # the sync in progress also covers new files
    cdef bint rewrite                   # a sync has failed: its data must be rewritten before the next sync
    cdef int64_t synced_number, synced_at       # end of durable data
    cdef int64_t syncing_number, syncing_at     # the same after the sync in progress succeeds

    cpdef str path_of(self, int64_t number)     # of a data file

    # Adds a record to the buffer; borrows the message. former: a place of this queue that is done once the record is
    # written, or NULL. -1: no memory, and nothing has changed.
    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept
    # Starts writing the buffer; False: nothing to write now. partial: on a full disk, keep the records that fit.
    cdef bint begin_write(self, bint partial) noexcept
    # Drops the buffer being filled; returns its record count. Adds their bytes to body_bytes, which may be NULL.
    cdef int64_t discard(self, int64_t *body_bytes) noexcept
    # The oldest message; the caller gets the reference; NULL: none available now.
    cdef Message *pop(self, uint16_t *attempts) noexcept
    # Publish time of that one, and its attempts; 0: none available now.
    cdef int64_t oldest_ns(self, uint32_t *attempts) noexcept
    cdef void done(self, Place *place) noexcept     # the record is finished; its place on disk may be released
    cdef int64_t done_before(self, int64_t serial) noexcept  # the same for all handed out before; returns their number
    cdef int64_t buffered(self) noexcept            # records that are in no file
    cdef void release_owner(self) noexcept          # the owner holds a reference to this queue
    cdef void drop_out(self) noexcept               # forgets all places, which then belong to their holders

    cdef Message *_take(self, uint16_t *attempts) noexcept
    cdef int _forget_all(self) except -1


cdef inline bint is_drained(DiskQueue queue) noexcept:
    # All records in the files have been read.
    return queue.read_number == queue.write_number and queue.read_at >= queue.write_at


cdef inline int64_t buffered_records(DiskQueue queue) noexcept:
    # Records that are not in a file yet.
    return (queue.kept.records + queue.out.records
            + (queue.writing.out.records if queue.writing is not NULL else 0))


cdef inline int64_t disk_bytes(DiskQueue queue) noexcept:
    # Bytes of the waiting records, as far as positions tell: files before the write file count as full.
    return ((queue.write_number - queue.read_number) * queue.max_file + queue.write_at - queue.read_at
            + queue.kept.length + queue.out.length
            + (queue.writing.out.length if queue.writing is not NULL else 0)) if queue.depth > 0 else 0


cdef inline void count_operations(DiskQueue queue, int64_t operations) noexcept:
    # Counts reads and writes, and requests the sync that is due after a number of them.
    queue.active = True
    if queue.unsynced == 0:
        queue.syncer.began(queue)
    queue.unsynced += operations
    if queue.unsynced >= queue.sync_every and not queue.sync_asked:
        queue.sync_asked = True
        queue.syncer.start(queue)


# ====================================================================== damage
# How a disk queue handles unreadable, missing and damaged files: see docs/ondisk.md.

# The file cannot be read but may be intact: it stays, and reading is retried.
cdef void retry_later(DiskQueue queue, int error) noexcept         # the same, without a log line


# ====================================================================== reading
# The read side of a disk queue. A thread reads and checks one block of whole records at a time; during sequential
# reading it prefetches the next block.

cdef enum:
    FIRST_WANT = 16384          # bytes of a queue's first block; each further one is four times as large
    MOST_WANT = 262144


# ====================================================================== writing
# The write side of a disk queue. The loop fills a buffer; a thread writes it, one at a time.
#
# A record becomes readable once it is written; before that only while writing fails: a full disk can empty.

# Starts writing the buffer; False: nothing to write now. partial: on a full disk, keep the records that fit.
cdef bint write_next(DiskQueue queue, bint partial) noexcept
cdef void finish_write(DiskQueue queue, WriteJob *job) noexcept    # the job is done; frees it
cdef Message *pop_buffer(DiskQueue queue, uint16_t *attempts) noexcept     # like DiskQueue.pop(), but from the buffer
