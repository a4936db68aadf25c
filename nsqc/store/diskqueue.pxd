# A queue of messages in files, in go-diskqueue's format: NAME.diskqueue.NNNNNN.dat, and their positions in
# NAME.diskqueue.meta.dat.
#
# Order of what waits: the files from (read_number, read_at) to (write_number, write_at), then the write buffer.
# Positions move only when a write has succeeded. depth counts both parts.

from libc.stdint cimport int64_t, uint16_t
from nsqc.store.filepool cimport FilePool, PoolFile
from nsqc.store.message cimport Message


cdef class DiskQueue:
    cdef readonly object name           # TOPIC or TOPIC:CHANNEL
    cdef readonly object folder         # of the files
    cdef readonly int64_t depth         # messages that wait
    cdef readonly int64_t read_number, read_at
    cdef readonly int64_t write_number, write_at
    cdef int64_t max_file               # bytes after which a new file begins
    cdef int64_t max_message            # bytes of a body; larger records are damage
    cdef FilePool pool
    cdef object syncer                  # nsqc.store.syncer.Syncer
    cdef object log
    cdef PoolFile reading, writing      # in the pool

    cdef char *out                      # owned: the write buffer
    cdef int64_t out_length, out_room
    cdef int64_t out_taken              # bytes at its front that pop() has already handed out
    cdef int64_t out_records            # records in it that were not handed out

    cdef char *block                    # owned: what was read of the read file
    cdef int64_t block_at               # offset of the block in the file
    cdef int64_t block_length
    cdef int64_t block_room
    cdef int64_t read_end               # of the read file, where it is not the write file; -1: not known yet
    cdef list spans                     # of a damaged file: intact stretches (begin, end) from read_at on; else None
    cdef readonly bint closed

    # For the syncer.
    cdef readonly int64_t unsynced      # reads and writes since the last sync began
    cdef readonly list done_files       # paths that the next sync may take away, and what they become: "" removes
    cdef readonly list full_files       # paths of files that were left for a new one and are not synced yet
    cdef int64_t sync_every
    cdef bint sync_asked                # the syncer has been asked since the last sync began
    cdef readonly bint active           # read or written since the last look

    # Adds a record to the write buffer; borrows the message. Raises MemoryError.
    cdef int append(self, Message *message, uint16_t attempts) except -1
    cdef int flush(self) noexcept       # writes the buffer: 0, or errno with nothing changed
    cdef int64_t discard(self) noexcept     # drops the buffer; how many records
    cdef Message *pop(self, uint16_t *attempts) noexcept    # the oldest, its reference the caller's; NULL: empty

    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept
    cdef int64_t _record(self) noexcept
    cpdef str path_of(self, int64_t number)
    cdef int _take_back(self, int64_t number) except -1
    cdef int _drop_buffer(self) except -1
    cdef int _next_file(self) except -1
    cdef int _find_spans(self) except -1
    cdef int64_t _count_files(self, int64_t first) except -1
    cdef bint _is_clean(self, list later) except -1
    cdef int _retire(self) except -1
    cdef int64_t _fill(self, int64_t wanted) noexcept
    cdef void _finish_file(self) noexcept
    cdef void _count(self, int64_t operations) noexcept
    cdef int _write_span(self, int64_t number, int64_t at, const char *c_from, int64_t length) noexcept
    cdef int64_t _end(self) noexcept
    cdef int64_t _size_of_read_file(self) noexcept
    cdef bint _damaged(self) noexcept
