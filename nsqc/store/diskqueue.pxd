# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and their positions in
# NAME.diskqueue.meta.dat.
#
# Order of what waits: the files from (read_number, read_at) to (write_number, write_at), then the write buffer.
# Positions move only when a write has succeeded. depth counts both parts. The read position never rests at the end of a
# file that is not written any more: there, it is the beginning of the next one.
#
# The positions on disk may lag behind: where tracks is set, they stay at the oldest record that was handed out and that
# done() was not called for; and so do the files.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.filepool cimport FilePool, PoolFile
from nsqc.store.message cimport Message
from nsqc.store.segment cimport Window
from nsqc.store.taken cimport Taken


cdef class DiskQueue:
    cdef readonly object name           # TOPIC or TOPIC:CHANNEL
    cdef readonly object folder         # of the files
    cdef readonly int64_t depth         # messages that wait; above 0 as long as any does
    cdef readonly int64_t read_number, read_at
    cdef readonly int64_t write_number, write_at
    cdef int64_t max_file               # bytes after which a new file begins
    cdef int64_t max_record             # bytes of a record; larger ones are damage
    cdef FilePool pool
    cdef object syncer                  # nsqc.store.syncer.Syncer
    cdef object log
    cdef PoolFile reading, writing      # in the pool

    cdef char *out                      # owned: the write buffer
    cdef int64_t out_length, out_room
    cdef int64_t out_taken              # bytes at its front that pop() has already handed out
    cdef int64_t out_records            # records in it that were not handed out

    cdef Window window                  # of the read file
    cdef bint complete                  # the read file is not written any more, and window.limit is its end
    cdef int64_t damaged_number         # of the last file that was found damaged; -1: none
    cdef bint damaged_linked            # it has its name as .bad already
    cdef readonly int read_error        # errno, while the files cannot be read; pop() tries again each time
    cdef readonly bint closed

    cdef bint tracks                    # done() is called for each record that pop() hands out with a serial
    cdef Taken taken                    # records that are out
    cdef readonly int64_t serial        # of the record that pop() has handed out last; 0: it lay in no file

    # For the syncer.
    cdef readonly int64_t unsynced      # reads and writes since the last sync began
    cdef readonly list done_files       # paths that the next sync may take away, and what they become: "" removes
    cdef list done_numbers              # of done_files: their file numbers; -1: they wait for nothing
    cdef readonly list full_files       # paths of files that were left for a new one and are not synced yet
    cdef int64_t sync_every
    cdef bint sync_asked                # the syncer has been asked since the last sync began
    cdef readonly bint active           # read or written since the last look

    # Adds a record to the write buffer; borrows the message. Raises MemoryError.
    cdef int append(self, Message *message, uint16_t attempts) except -1
    cdef int flush(self) noexcept       # writes the buffer: 0, or errno with nothing changed
    cdef int64_t discard(self) noexcept     # drops the buffer; how many records
    # The oldest, its reference the caller's; NULL: empty, or read_error.
    cdef Message *pop(self, uint16_t *attempts) noexcept
    cdef void done(self, int64_t serial) noexcept       # with a record; its place on disk may be left

    cdef int _let_go(self) except -1
    cpdef str path_of(self, int64_t number)
    cdef int _write_span(self, int64_t number, int64_t at, const char *c_from, int64_t length) noexcept
    cdef int _written(self, int64_t number, int64_t at, int64_t first_end) except -1
    cdef int _take_back(self, int64_t number) except -1
    cdef void _drop_buffer(self) noexcept
    cdef void _count(self, int64_t operations) noexcept
    cdef Message *_take(self, int64_t length, uint16_t *attempts) noexcept
    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept
    cdef bint _seek(self, int64_t *length) noexcept
    cdef int _enter_file(self) except -100000    # no errno is that large
    cdef int _leave_file(self) except -1
    cdef int _fail_reading(self, int error) except -1
    cdef int _missing(self) except -1
    cdef int _damaged(self, int64_t upto) except -1
    cdef int _end_write_file(self) except -1
    cdef int64_t _count_behind(self) except -2
    cdef int _retire(self) except -1
