"""A queue in files: batched writes, block reads, rolling, and what to do about damage. See docs/ondisk.md."""

cimport cython
from libc.errno cimport EIO, ENOENT
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport free, realloc
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR

import os

from nsqc.store import diskmeta, recovery
from nsqc.store.diskio cimport io_size, io_truncate, io_write
from nsqc.store.message cimport message_new, message_unref
from nsqc.store.segment cimport (HEAD_BYTES, SIZE_BYTES, Tally, head_plausible, record_load, record_store, segment_next,
                                 tally, window_free)
from nsqc.store.taken cimport TakenRecord, taken_add, taken_clear, taken_count, taken_done, taken_first, taken_free
from nsqc.wire.hton cimport load_i32

cdef enum:
    KEPT_OUT_BYTES = 65536      # of an emptied write buffer
    RECOUNT_BYTES = 67108864    # that may be read on the loop after a damage; beyond it, depth is an estimate


@cython.final
@cython.no_gc_clear     # __dealloc__ needs the pool
cdef class DiskQueue:
    """One topic's or channel's queue on disk. Made by nsqc.store.disks. Raises OSError where it cannot be opened.

    files: what there is of it, as nsqc.store.diskmeta.queue_files() has it; None: the folder is listed for that.
    """

    def __init__(self, str name not None, str folder not None, int64_t max_bytes_per_file, int64_t max_msg_size,
                 FilePool pool not None, syncer, log, dict files=None):
        self.reading.fd = self.writing.fd = -1
        self.name = name
        self.folder = folder
        self.max_file = max_bytes_per_file
        self.max_record = HEAD_BYTES + max_msg_size
        self.pool = pool
        self.syncer = syncer
        self.sync_every = syncer.every
        self.log = log
        self.damaged_number = -1
        self.done_files = []
        self.done_numbers = []
        self.full_files = []
        self._load(files)

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.close(&self.reading)
            self.pool.close(&self.writing)
        free(self.out)
        window_free(&self.window)
        taken_free(&self.taken)

    def _load(self, dict files):
        """Positions from the meta file and the files themselves; damage where reading begins is noticed here, not by
        the first consumer."""
        cdef int64_t length
        start = recovery.open_queue(self.folder, self.name, self.meta_path, self.max_record, self.path_of, self.log,
                                    files)
        self.depth, self.read_number, self.read_at, self.write_number, self.write_at, consumed, changed = start
        self.done_files = [(path, "") for path in consumed]
        self.done_numbers = [-1] * len(consumed)
        if self._waits_in_files():
            self._seek(&length)
        if changed or self.done_files:
            self._count(1)
        self.release()

    # ------------------------------------------------------------------ names

    cpdef str path_of(self, int64_t number):
        """The path of a data file."""
        return f"{self.folder}/{self.name}.diskqueue.{number:06d}.dat"

    @property
    def meta_path(self) -> str:
        """The path of the positions."""
        return f"{self.folder}/{self.name}.diskqueue.meta.dat"

    @property
    def write_path(self) -> str:
        """The path of the file that is written."""
        return self.path_of(self.write_number)

    @property
    def dirty(self) -> bool:
        """Whether records wait in the write buffer."""
        return self.out_length > 0

    def meta_text(self) -> bytes:
        """The positions as the meta file has them; the write buffer does not count, and records that are out wait."""
        cdef TakenRecord *oldest = taken_first(&self.taken)
        if oldest is NULL:
            return diskmeta.encode(self.depth - self.out_records, self.read_number, self.read_at,
                                   self.write_number, self.write_at)
        return diskmeta.encode(self.depth - self.out_records + taken_count(&self.taken), oldest.number, oldest.at,
                               self.write_number, self.write_at)

    def _waits_in_files(self) -> bool:
        return self.read_number < self.write_number or self.read_at < self.write_at

    # ------------------------------------------------------------------ writing

    cdef int append(self, Message *message, uint16_t attempts) except -1:
        cdef int64_t need = self.out_length + HEAD_BYTES + message.size
        cdef int64_t room
        cdef char *c_grown
        if need > self.out_room:
            room = max(need, 2 * self.out_room, 4096)
            c_grown = <char *> realloc(self.out, <size_t> room)
            if c_grown is NULL:
                raise MemoryError
            self.out = c_grown
            self.out_room = room
        record_store(self.out + self.out_length, message, attempts)
        self.out_length = need
        self.out_records += 1
        self.depth += 1
        return 0

    cdef int flush(self) noexcept:
        cdef int64_t number = self.write_number, at = self.write_at, first_end = -1
        cdef int64_t offset = self.out_taken, begin, size
        cdef int error
        while offset < self.out_length:
            begin = offset
            while offset < self.out_length:
                size = SIZE_BYTES + <int64_t> load_i32(self.out + offset)
                if at + offset - begin > 0 and at + offset - begin + size > self.max_file:
                    break
                offset += size
            if offset > begin:
                error = self._write_span(number, at, self.out + begin, offset - begin)
                if error:
                    self._take_back(number)
                    return error
                at += offset - begin
            if offset < self.out_length:
                first_end = at if first_end < 0 else first_end
                number += 1
                at = 0
        self._written(number, at, first_end)
        return 0

    cdef int _written(self, int64_t number, int64_t at, int64_t first_end) except -1:
        """The write buffer has gone into files up to here; first_end is where the first of several ended."""
        cdef int64_t begun = self.write_number, records = self.out_records
        self.write_number = number
        self.write_at = at
        self._drop_buffer()
        if number > begun:
            self.full_files += [self.path_of(full) for full in range(begun, number)]
            if self.read_number == begun:
                self.window.limit = first_end
                self.complete = True
                if self.read_at == first_end:
                    self._leave_file()
        if records:
            self._count(records)
        return 0

    cdef int _write_span(self, int64_t number, int64_t at, const char *c_from, int64_t length) noexcept:
        cdef bytes path = os.fsencode(self.path_of(number))
        cdef int fd = self.pool.open(&self.writing, number, path, O_RDWR | O_CREAT)
        cdef int error
        if fd < 0:
            return -fd
        error = io_write(fd, c_from, length, at)
        if error:
            io_truncate(fd, at)
        return error

    cdef int _take_back(self, int64_t number) except -1:
        """After a failed flush: what had been written of it behind the write position goes again."""
        cdef bytes path = os.fsencode(self.path_of(self.write_number))
        cdef int fd
        for later in range(self.write_number + 1, number + 1):
            try:
                os.unlink(self.path_of(later))
            except OSError:
                continue
        if number > self.write_number:
            fd = self.pool.open(&self.writing, self.write_number, path, O_RDWR)
            if fd >= 0:
                io_truncate(fd, self.write_at)
        return 0

    cdef void _drop_buffer(self) noexcept:
        self.out_length = self.out_taken = self.out_records = 0
        if self.out_room > KEPT_OUT_BYTES:
            free(self.out)
            self.out = NULL
            self.out_room = 0

    cdef int64_t discard(self) noexcept:
        cdef int64_t records = self.out_records
        self.depth -= records
        self._drop_buffer()
        return records

    cdef void _count(self, int64_t operations) noexcept:
        """Reads and writes that the next sync covers."""
        self.active = True
        if self.unsynced == 0:
            self.syncer.began(self)
        self.unsynced += operations
        if self.unsynced >= self.sync_every and not self.sync_asked:
            self.sync_asked = True
            self.syncer.start(self)

    # ------------------------------------------------------------------ reading

    cdef Message *pop(self, uint16_t *attempts) noexcept:
        cdef int64_t length, at = self.read_at - self.window.start
        cdef const char *c_record
        self.serial = 0
        if self.read_number == self.write_number and self.read_at == self.write_at:
            return self._pop_buffer(attempts)
        # Usually the record and the head behind it lie in the window, and that head is fine.
        if 0 <= at and at + HEAD_BYTES <= self.window.length:
            c_record = self.window.c_data + at
            length = SIZE_BYTES + <int64_t> load_i32(c_record)
            if (HEAD_BYTES <= length <= self.max_record and at + length + HEAD_BYTES <= self.window.length
                    and head_plausible(c_record + length, self.max_record)):
                return self._take(length, attempts)
        if self._seek(&length):
            return self._take(length, attempts)
        return NULL if self.read_error else self._pop_buffer(attempts)

    cdef Message *_take(self, int64_t length, uint16_t *attempts) noexcept:
        """The record at the read position, which lies in the window."""
        cdef Message *message = record_load(self.window.c_data + (self.read_at - self.window.start), attempts)
        if message is NULL:
            return NULL
        if self.tracks:
            self.serial = taken_add(&self.taken, self.read_number, self.read_at, length)
        self.read_at += length
        self.depth -= 1
        if self.complete and self.read_at >= self.window.limit:
            self._leave_file()
        if self.depth <= self.out_records and (self.read_number < self.write_number or self.read_at < self.write_at):
            # The positions file had said too little: whoever goes by depth must not leave the rest behind.
            self.depth = self.out_records + 1
        self._count(1)
        return message

    cdef void done(self, int64_t serial) noexcept:
        if serial and taken_done(&self.taken, serial) and self.unsynced == 0 and not self.closed:
            self.unsynced = 1
            self.syncer.began(self)

    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept:
        cdef Message *message
        if self.depth != self.out_records:
            self.log.error("DISKQUEUE(%s): %d messages fewer in the files than its positions said", self.name,
                           self.depth - self.out_records)
            self.depth = self.out_records
            self._count(1)
        if self.out_records == 0:
            return NULL
        message = record_load(self.out + self.out_taken, attempts)
        if message is not NULL:
            self.out_taken += HEAD_BYTES + message.size
            self.out_records -= 1
            self.depth -= 1
            if self.out_records == 0:
                self._drop_buffer()
        return message

    cdef bint _seek(self, int64_t *length) noexcept:
        """Has the read position at an intact record that lies in the window, whatever has to be skipped for it.

        False: the files hold none, or they cannot be read now (read_error).
        """
        cdef int64_t found
        cdef int answer
        try:
            while self.read_number < self.write_number or self.read_at < self.write_at:
                answer = self._enter_file()
                if answer == -ENOENT:
                    self._missing()
                    continue
                if answer >= 0 and self.complete and self.read_at >= self.window.limit:
                    self._leave_file()
                    continue
                if answer >= 0:
                    answer = segment_next(&self.window, answer, self.max_record, self.read_at, &found, length)
                if answer < 0:
                    self._fail_reading(-answer)
                    return False
                self.read_error = 0
                if answer == 0:
                    self._damaged(self.window.limit)
                    self._leave_file()
                    continue
                if found > self.read_at:
                    self._damaged(found)
                    self.read_at = found
                return True
        except Exception as error:
            self.log.error("DISKQUEUE(%s): cannot read %s - %r", self.name, self.path_of(self.read_number), error)
            self.read_error = EIO
            return False
        self.read_error = 0
        return False

    cdef int _enter_file(self) except -100000:
        """The descriptor of the read file, or -errno; the window knows how far it may be read."""
        cdef bytes path = os.fsencode(self.path_of(self.read_number))
        cdef int fd = self.pool.open(&self.reading, self.read_number, path, O_RDONLY)
        cdef int64_t size
        self.active = True
        if fd < 0:
            return fd
        if self.read_number == self.write_number:
            self.window.limit = self.write_at
        elif not self.complete:
            size = io_size(fd)
            if size < 0:
                return <int> size
            self.window.limit = size
            self.complete = True
        return fd

    cdef int _leave_file(self) except -1:
        """The read file is read through: on to the next one."""
        path = self.path_of(self.read_number)
        becomes = ""
        if self.damaged_number == self.read_number and not self.damaged_linked:
            becomes = diskmeta.bad_name(path)
        self.done_files.append((path, becomes))
        self.done_numbers.append(self.read_number)
        self.pool.close(&self.reading)
        self.read_number += 1
        self.read_at = 0
        self.complete = False
        self.window.start = self.window.length = 0
        self.active = True
        self.unsynced += 1
        if not self.sync_asked:
            self.sync_asked = True
            self.syncer.start(self)
        return 0

    # ------------------------------------------------------------------ damage

    cdef int _fail_reading(self, int error) except -1:
        """Nothing is wrong with the file as far as one knows: it stays, and the next pop() tries again."""
        if self.read_error != error:
            self.log.error("DISKQUEUE(%s): cannot read %s - %s", self.name, self.path_of(self.read_number),
                           os.strerror(error))
        self.read_error = error
        return 0

    cdef int _missing(self) except -1:
        """The read file is not there: the next one it is."""
        self.log.error("DISKQUEUE(%s): %s is missing", self.name, self.path_of(self.read_number))
        self._end_write_file()
        self._leave_file()
        self._recount(0, 1, 0)
        return 0

    cdef int _damaged(self, int64_t upto) except -1:
        """No record stands between the read position and this offset. Said once a file, with all that follows."""
        cdef bytes name
        cdef Tally rest
        if self.damaged_number == self.read_number:
            return 0
        self._end_write_file()
        path = self.path_of(self.read_number)
        name = os.fsencode(path)
        rest = tally(name, self.read_at, self.max_record)
        self.damaged_number = self.read_number
        self.damaged_linked = diskmeta.keep_bad(path)
        lost = rest.damaged + rest.size - rest.end
        self.log.error("DISKQUEUE(%s): %s is damaged at %d: %d bytes cannot be read, %d intact messages follow; "
                       "it is kept as .bad", self.name, path, self.read_at, lost, rest.records)
        sound = rest.end - self.read_at - rest.damaged
        self._recount(rest.records, max(1, round(lost * rest.records / sound) if sound else 1), self.read_at)
        return 0

    cdef int _end_write_file(self) except -1:
        """Nothing may be added to a file that is damaged or missing."""
        if self.read_number == self.write_number:
            self.window.limit = self.write_at
            self.complete = True
            self.full_files.append(self.write_path)
            self.pool.close(&self.writing)
            self.write_number += 1
            self.write_at = 0
        return 0

    def _recount(self, int64_t here, int64_t lost, int64_t at):
        """Sets depth after a damage: here records follow in this file; lost is an estimate, for when the files behind
        are too large to count on the loop. The end of the queue corrects what is left of an error."""
        cdef int64_t behind = self._count_behind()
        if behind >= 0:
            self.depth = here + behind + self.out_records
        else:
            self.depth = max(self.depth - lost, here + self.out_records + 1)
        self._count(1)

    cdef int64_t _count_behind(self) except -2:
        """Records in the files behind the read file (or in all, where that was left); -1: too much to read."""
        cdef int64_t total = 0, number, first = self.read_number + (1 if self.damaged_number == self.read_number else 0)
        cdef bytes name
        paths = [self.path_of(number) for number in range(first, self.write_number + 1)]
        paths = [path for path in paths if os.path.isfile(path)]
        if sum(map(os.path.getsize, paths)) > RECOUNT_BYTES:
            return -1
        for path in paths:
            name = os.fsencode(path)
            total += tally(name, 0, self.max_record).records
        return total

    # ------------------------------------------------------------------ administration

    def empty(self):
        """Drops everything; the next file has a new number."""
        self._retire()
        self.write_number += 1
        self.write_at = 0
        self.read_number = self.write_number
        self.read_at = self.depth = 0
        self.unsynced += 1
        self.syncer.start(self)

    def delete(self):
        """Drops everything, the positions, too."""
        self._retire()
        self.closed = True
        self.release()
        self.syncer.deleted(self)

    cdef int _retire(self) except -1:
        """Renames all files, so that a queue of the same name can begin at once, and has them removed."""
        cdef int64_t number
        self.discard()
        self.depth = 0
        self.pool.close(&self.reading)
        self.pool.close(&self.writing)
        self.window.start = self.window.length = 0
        self.complete = False
        self.full_files = []
        self._let_go()
        paths = [self.path_of(number) for number in range(self.read_number, self.write_number + 1)]
        retired = [(path, "") for path in map(diskmeta.retire, paths + [self.meta_path]) if path]
        self.done_files += retired
        self.done_numbers += [-1] * len(retired)
        return 0

    cdef int _let_go(self) except -1:
        """Nothing is out any more."""
        if taken_count(&self.taken):
            taken_clear(&self.taken)
            self.unsynced += 1
        return 0

    def close(self):
        """Writes out and closes; positions are on disk once the syncer has settled. Raises OSError."""
        if self.closed:
            return
        error = self.flush()
        lost = self.out_records
        self.closed = True
        self._let_go()
        try:
            self.syncer.finish(self)
        finally:
            self.discard()
            self.release()
        if error:
            raise OSError(error, f"{os.strerror(error)}: {lost} messages are lost", self.write_path)

    def release(self):
        """Gives back descriptors and memory that an idle queue needs not."""
        self.pool.close(&self.reading)
        self.pool.close(&self.writing)
        window_free(&self.window)
        if self.out_length == 0:
            free(self.out)
            self.out = NULL
            self.out_room = 0
        if taken_count(&self.taken) == 0:
            taken_free(&self.taken)

    def looked(self) -> bool:
        """Whether it was read or written since the last call; for the idle check."""
        cdef bint was = self.active
        self.active = False
        return was

    def sync_began(self) -> tuple:
        """What a sync that begins now has to do: (paths to sync, positions, files to take away)."""
        cdef list paths = self.full_files
        cdef TakenRecord *oldest = taken_first(&self.taken)
        cdef list done
        cdef Py_ssize_t count = len(self.done_files)
        if self.write_at:
            paths = paths + [self.write_path]
        if oldest is not NULL:
            count = sum(1 for number in self.done_numbers if number < oldest.number)
        done = self.done_files[:count]
        self.full_files = []
        del self.done_files[:count], self.done_numbers[:count]
        self.unsynced = 0
        self.sync_asked = False
        return paths, self.meta_text(), done

    @property
    def needs_sync(self) -> bool:
        """Whether positions or data have changed since the last sync began."""
        return self.unsynced > 0 or bool(self.done_files or self.full_files)

    def sync_failed(self, list paths not None, list done not None):
        """What a failed sync was to do is to be done again."""
        self.full_files = [path for path in paths if path != self.write_path] + self.full_files
        self.done_files = done + self.done_files
        self.done_numbers = [-1] * len(done) + self.done_numbers
        self.unsynced += 1

    # ------------------------------------------------------------------ for Python

    def put(self, bytes body not None, bytes message_id not None, timestamp_ns: int, attempts: int = 0):
        """Adds a record to the write buffer; message_id has 16 digits."""
        cdef Message *message
        if len(message_id) != 16:
            raise ValueError("a message id has 16 bytes")
        message = message_new(message_id, timestamp_ns, body, <unsigned int> len(body))
        if message is NULL:
            raise MemoryError
        try:
            self.append(message, attempts)
        finally:
            message_unref(message)

    def get(self):
        """The oldest record as (body, message_id, timestamp_ns, attempts); None where the queue is empty."""
        cdef uint16_t attempts
        cdef Message *message = self.pop(&attempts)
        if message is NULL:
            return None
        found = (message.body[:message.size], message.id[:16], message.timestamp_ns, attempts)
        message_unref(message)
        return found

    def commit(self) -> int:
        """Writes the buffer; 0 or errno."""
        return self.flush()

    def rollback(self) -> int:
        """Drops the buffer; how many records."""
        return self.discard()
