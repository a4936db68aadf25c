# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and their positions in
# NAME.diskqueue.meta.dat.
#
# Order of what waits: the files from (read_number, read_at) to (write_number, write_at), then the buffer that is being
# written, then the one that is being filled. Positions move only when a write has succeeded. depth counts all parts.
# The read position never rests at the end of a file that is not written any more: there, it is the beginning of the
# next one.
#
# Files are read and written by the threads of an IoPool, one read and one write of a queue at a time; the loop only
# copies. What is read is a block of whole records that the thread has checked. A buffer that has been written becomes
# the block where the reader has read everything before it.
#
# A record can be had once it is written; before that only while writing fails, so that a full disk can empty.
#
# The positions on disk may lag behind: where tracks is set, they stay at the oldest record that was handed out and that
# done() was not called for; and so do the files.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.disk.filejobs cimport ReadJob, WriteJob
from nsqc.store.disk.pool cimport IoPool, Job, JobOwner
from nsqc.store.message cimport Message
from nsqc.store.disk.segment cimport Block, Window
from nsqc.store.disk.unacked cimport Place, Unacked
from nsqc.store.disk.writebuf cimport OutBuf


cdef class QueueWatcher:
    # Who hears from a disk queue; always from the loop.
    # A write has ended; failed: how many records were taken back.
    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept
    cdef void on_readable(self) noexcept        # pop() has more to give than the last time
    cdef void on_unreadable(self) noexcept      # read_error
    cdef void check_rules(self) noexcept        # in the debug build, now and then


cdef class DiskQueue(JobOwner):
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
    cdef object log
    cdef QueueWatcher watcher           # None: nobody
    cdef readonly bint keeps            # what could not be written stays in the buffer; else it is taken back

    cdef OutBuf out                     # being filled
    cdef OutBuf kept                    # in front of it: what could not be written and is written next
    cdef char *c_spare                  # owned: memory of a buffer that was written, for the next one; NULL: none
    cdef int64_t spare_room
    cdef WriteJob *writing              # under way; NULL: nothing is written
    cdef readonly int write_error       # errno of the last write; 0: it succeeded
    cdef int64_t committed              # records written so far

    cdef ReadJob *reading               # under way; NULL: nothing is read
    cdef Window window                  # the block that is read from
    cdef int64_t block_end              # behind its last whole record; -1: there is none
    cdef int64_t want                   # bytes of the next block
    cdef Block ahead                    # read ahead; answer 0: nothing was
    cdef int64_t ahead_number
    cdef bint ahead_whole               # its window.limit is the end of the file
    cdef bint complete                  # the read file is not written any more, and window.limit is its end
    cdef bint waiting                   # pop() had nothing to give, but will
    cdef int64_t damaged_number         # of the last file that was found damaged; -1: none
    cdef bint damaged_linked            # it has its name as .bad already
    cdef readonly int read_error        # errno, while the files cannot be read; pop() tries again
    cdef int64_t retry_ns               # monotonic: not before
    cdef readonly bint closed
    cdef readonly bint deleted

    cdef readonly bint tracks           # done() is called for each record that pop() hands out with a place
    cdef Unacked unacked                # records that are out
    cdef Place *place                   # of the record that pop() has handed out last; NULL: it lay in no file

    # For the syncer.
    cdef readonly int64_t unsynced      # reads and writes since the last sync began
    cdef readonly list done_files       # paths that the next sync may take away, and what they become: "" removes
    cdef list done_numbers              # of done_files: their file numbers; -1: they wait for nothing
    cdef readonly list copies           # queues whose data must be durable before these positions are
    cdef int64_t sync_every
    cdef bint sync_asked                # the syncer has been asked since the last sync began
    cdef readonly bint active           # read or written since the last look
    cdef bint new_file                  # since the last sync began
    cdef bint syncing_folder            # the sync under way is for new files, too
    cdef bint rewrite                   # a sync has failed: what it was for must be written again before it counts
    cdef int64_t synced_number, synced_at   # up to where the data is durable
    cdef int64_t syncing_number, syncing_at     # the same, once the sync under way has succeeded

    # Adds a record to the buffer; borrows the message. former: a place of this queue that is done once the record is
    # written, or NULL. -1: no memory, and nothing has changed.
    cdef int append(self, Message *message, uint16_t attempts, Place *former) noexcept
    cdef bint begin_write(self, bint partial) noexcept      # writes the buffer; False: nothing to do just now
    cdef int64_t discard(self, int64_t *body_bytes) noexcept    # drops what is being filled; how many records
    # The oldest, its reference the caller's; NULL: nothing can be had now.
    cdef Message *pop(self, uint16_t *attempts) noexcept
    cdef void done(self, Place *place) noexcept     # with a record; its place on disk may be left
    cdef int64_t done_before(self, int64_t serial) noexcept     # with all that were handed out before; how many
    cdef int64_t buffered(self) noexcept            # records that are in no file
    cdef void let_go(self) noexcept                 # of its watcher, which holds this queue
    cdef void drop_out(self) noexcept               # nothing is out: places belong to their holders

    cpdef str path_of(self, int64_t number)
    cdef void _count(self, int64_t operations) noexcept
    cdef void _take_spare(self) noexcept
    cdef void _keep_spare(self, OutBuf *out) noexcept
    cdef void _drop_spare(self) noexcept
    cdef void _write_done(self, WriteJob *job) noexcept
    cdef int _written(self, WriteJob *job) except -1
    cdef void _keep_unwritten(self, WriteJob *job) noexcept
    cdef Message *_take(self, uint16_t *attempts) noexcept
    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept
    cdef bint _next_block(self) noexcept
    cdef void _begin_read(self, int64_t number, int64_t at, bint probes) noexcept
    cdef void _read_done(self, ReadJob *job) noexcept
    cdef int _use_block(self, ReadJob *job) except -1
    cdef void _adopt(self, Block *block) noexcept
    cdef void _read_ahead(self) noexcept
    cdef void _drop_block(self) noexcept
    cdef void _drop_ahead(self) noexcept
    cdef bint _is_drained(self) noexcept
    cdef bint _is_durable(self) noexcept
    cdef void _correct_depth(self) noexcept
    cdef int _leave_file(self) except -1
    cdef int _fail_reading(self, int error) except -1
    cdef int _missing(self, ReadJob *job) except -1
    cdef int _damaged(self, int64_t upto, ReadJob *job) except -1
    cdef int _recount(self, ReadJob *job, int64_t lost) except -1
    cdef int _end_write_file(self) except -1
    cdef int _forget_all(self) except -1
