"""A queue in files: batched writes, block reads, rolling, and what to do about damage. See docs/ondisk.md."""

cimport cython
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport free, realloc
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR

import os

from nsqc.store import diskmeta
from nsqc.store.diskio cimport io_read, io_size, io_truncate, io_write
from nsqc.store.message cimport message_new, message_unref
from nsqc.store.segment cimport (RECORD_HEAD, Scan, record_holds, record_load, record_resync, record_scan,
                                 record_size, record_store)

cdef enum:
    BLOCK_BYTES = 262144
    KEPT_OUT_BYTES = 65536      # of an emptied write buffer


@cython.final
cdef class DiskQueue:
    """One topic's or channel's queue on disk. Made by nsqc.store.disks."""

    def __init__(self, str name not None, str folder not None, int64_t max_bytes_per_file, int64_t max_msg_size,
                 FilePool pool not None, syncer, log):
        self.name = name
        self.folder = folder
        self.max_file = max_bytes_per_file
        self.max_message = max_msg_size
        self.pool = pool
        self.syncer = syncer
        self.sync_every = syncer.every
        self.log = log
        self.reading.fd = self.writing.fd = -1
        self.read_end = -1
        self.done_files = []
        self.full_files = []
        self._load()

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.close(&self.reading)
            self.pool.close(&self.writing)
        free(self.out)
        free(self.block)

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
        """The positions as the meta file has them; the write buffer does not count."""
        return diskmeta.encode(self.depth - self.out_records, self.read_number, self.read_at,
                               self.write_number, self.write_at)

    # ------------------------------------------------------------------ writing

    cdef int append(self, Message *message, uint16_t attempts) except -1:
        cdef int64_t need = self.out_length + RECORD_HEAD + message.size
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
        cdef int64_t number = self.write_number, at = self.write_at
        cdef int64_t offset = self.out_taken, begin, size
        cdef int64_t records = self.out_records
        cdef list full = []
        cdef int error
        while offset < self.out_length:
            begin = offset
            while offset < self.out_length:
                size = record_size(self.out + offset, self.out_length - offset, self.max_message)
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
                full.append(self.path_of(number))
                number += 1
                at = 0
        self.full_files += full
        self.write_number = number
        self.write_at = at
        self._drop_buffer()
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

    cdef int _drop_buffer(self) except -1:
        self.out_length = self.out_taken = self.out_records = 0
        if self.out_room > KEPT_OUT_BYTES:
            free(self.out)
            self.out = NULL
            self.out_room = 0
        return 0

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
        cdef Message *message
        cdef int64_t size
        while self.read_number < self.write_number or self.read_at < self.write_at:
            size = self._record()
            if size <= 0:
                if self.spans is None and self.read_number < self.write_number and self.read_at == self._end():
                    self._finish_file()
                elif not self._damaged():
                    break
                continue
            message = record_load(self.block + (self.read_at - self.block_at), attempts)
            if message is NULL:
                return NULL
            self.read_at += size
            self.depth -= 1
            if self.read_number < self.write_number and self.read_at >= self._end() and self.spans is None:
                self._finish_file()
            self._count(1)
            return message
        return self._pop_buffer(attempts)

    cdef int64_t _record(self) noexcept:
        """Size of the whole record at the read position, which lies in the block then; 0 or below: there is none."""
        cdef int64_t left, have = self._fill(4)
        cdef int64_t size = record_size(self.block + (self.read_at - self.block_at), have, self.max_message)
        if size == 0 and have >= 4:
            have = self._fill(RECORD_HEAD + self.max_message)
            size = record_size(self.block + (self.read_at - self.block_at), have, self.max_message)
        if size > 0:
            left = self._end() - self.read_at
            if have < size + 4 and have < left:
                have = self._fill(size + 4)
            if not record_holds(self.block + (self.read_at - self.block_at), size, have, left, self.max_message):
                return -1
        return size

    cdef Message *_pop_buffer(self, uint16_t *attempts) noexcept:
        cdef Message *message
        if self.out_records == 0:
            return NULL
        message = record_load(self.out + self.out_taken, attempts)
        if message is not NULL:
            self.out_taken += RECORD_HEAD + message.size
            self.out_records -= 1
            self.depth -= 1
            if self.out_records == 0:
                self._drop_buffer()
        return message

    cdef int64_t _end(self) noexcept:
        """Where the readable part of the read file ends."""
        if self.spans is not None:
            return self.spans[0][1] if self.spans else 0
        if self.read_number == self.write_number:
            return self.write_at
        if self.read_end < 0:
            self.read_end = self._size_of_read_file()
        return self.read_end

    cdef int64_t _size_of_read_file(self) noexcept:
        cdef bytes path = os.fsencode(self.path_of(self.read_number))
        cdef int fd = self.pool.open(&self.reading, self.read_number, path, O_RDONLY)
        # What cannot be opened is damage, not an empty file that has been read through.
        return max(io_size(fd), 0) if fd >= 0 else self.read_at + 1

    cdef int64_t _fill(self, int64_t wanted) noexcept:
        """Bytes at hand from read_at on: wanted, or as many as there are; fewer too where the file cannot be read."""
        cdef int64_t have = self.block_at + self.block_length - self.read_at
        cdef int64_t end, got, room
        cdef bytes path
        cdef char *c_grown
        cdef int fd
        if self.block_length and self.read_at >= self.block_at and have >= wanted:
            return have
        path = os.fsencode(self.path_of(self.read_number))
        fd = self.pool.open(&self.reading, self.read_number, path, O_RDONLY)
        if fd < 0:
            return 0
        end = self._end()
        if self.read_at >= end:
            return 0
        if (self.block_length and self.read_at >= self.block_at and have > 0
                and self.block_at + self.block_length >= end):
            return have
        room = max(wanted, <int64_t> BLOCK_BYTES) if wanted <= BLOCK_BYTES else min(wanted, end - self.read_at)
        if room > self.block_room:
            c_grown = <char *> realloc(self.block, <size_t> room)
            if c_grown is NULL:
                return 0
            self.block = c_grown
            self.block_room = room
        got = io_read(fd, self.block, min(room, end - self.read_at), self.read_at)
        self.block_at = self.read_at
        self.block_length = max(got, 0)
        return self.block_length

    cdef void _finish_file(self) noexcept:
        """The read file is read through: on to the next one."""
        self.done_files.append((self.path_of(self.read_number), ""))
        self._next_file()

    cdef int _next_file(self) except -1:
        self.pool.close(&self.reading)
        self.read_number += 1
        self.read_at = 0
        self.read_end = -1
        self.block_length = 0
        self.spans = None
        self.active = True
        self.unsynced += 1
        if not self.sync_asked:
            self.sync_asked = True
            self.syncer.start(self)
        return 0

    # ------------------------------------------------------------------ damage

    cdef bint _damaged(self) noexcept:
        """No record stands at read_at. True: reading may go on elsewhere; False: the end of the files is reached."""
        try:
            if self.spans is None:
                self._find_spans()
            elif self.spans and self.read_at >= self.spans[0][1]:
                del self.spans[0]
            while self.spans and self.spans[0][1] <= self.read_at:
                del self.spans[0]
            if self.spans:
                self.read_at = max(self.read_at, self.spans[0][0])
                return True
            path = self.path_of(self.read_number)
            self.done_files.append((path, path + ".bad"))
            self.log.error("DISKQUEUE(%s): %s is read through and kept as %s.bad", self.name, path, path)
            self._next_file()
            return True
        except Exception as error:
            self.log.error("DISKQUEUE(%s): cannot read %s - %r", self.name, self.path_of(self.read_number), error)
            return False

    cdef int _find_spans(self) except -1:
        """Looks for intact records in the rest of the read file, and counts anew what waits."""
        cdef int64_t at = 0, begin, records = 0, have
        cdef bytes data
        cdef Scan found
        path = self.path_of(self.read_number)
        if self.read_number == self.write_number:
            # Nothing may be added to a damaged file.
            self.write_number += 1
            self.write_at = 0
            self.pool.close(&self.writing)
        try:
            with open(path, "rb") as file:
                file.seek(self.read_at)
                data = file.read()
        except OSError as error:
            self.log.error("DISKQUEUE(%s): cannot read %s - %s", self.name, path, error)
            data = b""
        have = len(data)
        self.spans = []
        while at >= 0 and at < have:
            begin = record_resync(data, at, have, self.max_message)
            if begin < 0:
                break
            found = record_scan((<const char *> data) + begin, have - begin, self.max_message)
            at = begin + found.end
            if found.end == 0:
                at += 1
                continue
            self.spans.append((self.read_at + begin, self.read_at + at))
            records += found.records
        lost = have - sum(end - start for start, end in self.spans)
        self.log.error("DISKQUEUE(%s): %s is damaged at %d: %d bytes cannot be read, %d intact messages follow",
                       self.name, path, self.read_at, lost, records)
        self.block_length = 0
        self.depth = records + self._count_files(self.read_number + 1) + self.out_records
        return 0

    cdef int64_t _count_files(self, int64_t first) except -1:
        """Records in the files from first on."""
        cdef int64_t total = 0
        for number in range(first, self.write_number + 1):
            total += self._scan(number, 0)[0]
        return total

    def _scan(self, int64_t number, int64_t at) -> tuple:
        """(records, end of the last whole one, damaged, size) of a file from an offset on."""
        cdef Scan found
        cdef bytes data
        try:
            with open(self.path_of(number), "rb") as file:
                file.seek(at)
                data = file.read()
        except OSError:
            return 0, at, False, at
        found = record_scan(data, len(data), self.max_message)
        return found.records, at + found.end, bool(found.damaged), at + len(data)

    # ------------------------------------------------------------------ start

    def _load(self):
        """Positions from the meta file and the files themselves."""
        cdef int64_t number
        numbers = diskmeta.data_files(self.folder, self.name)
        meta = diskmeta.read(self.meta_path)
        if meta is None and not numbers:
            return
        if meta is None:
            if os.path.exists(self.meta_path):
                self.log.error("DISKQUEUE(%s): %s cannot be used, positions are rebuilt from the files",
                               self.name, self.meta_path)
            meta = (-1, numbers[0], 0, numbers[0], 0)
        self.depth, self.read_number, self.read_at, self.write_number, self.write_at = meta
        for number in numbers:
            if number < self.read_number:
                self.done_files.append((self.path_of(number), ""))
        later = [number for number in numbers if number >= self.read_number]
        if self._is_clean(later):
            self._check_first()
            return
        self._recover(later)

    cdef bint _is_clean(self, list later) except -1:
        """Whether the positions tell what the files hold."""
        if self.depth < 0 or self.read_number > self.write_number:
            return False
        if self.read_number == self.write_number and self.read_at > self.write_at:
            return False
        if not later:
            return self.write_at == 0 and self.read_number == self.write_number and self.depth == 0
        if later[len(later) - 1] > self.write_number:
            return False
        if later[0] != self.read_number:
            return self.read_number == self.write_number and self.write_at == 0 and self.depth == 0
        if later[len(later) - 1] != self.write_number:
            return self.write_at == 0 and later[len(later) - 1] == self.write_number - 1
        try:
            return os.stat(self.path_of(self.write_number)).st_size == self.write_at
        except OSError:
            return False

    def _check_first(self):
        """Damage at the read position is noticed at the start, not by the first consumer."""
        if self.read_number == self.write_number and self.read_at == self.write_at:
            self.depth = 0
        elif self._record() <= 0 and not (self.read_number < self.write_number and self.read_at == self._end()):
            self._damaged()

    def _recover(self, list later):
        """The files hold other than the positions say: counts what is there and cuts a half-written tail."""
        cdef int64_t number, total = 0, at
        if later and later[0] != self.read_number:
            self.log.error("DISKQUEUE(%s): %s is missing, going on with file %d", self.name,
                           self.path_of(self.read_number), later[0])
            self.read_number, self.read_at = later[0], 0
        if not later:
            self.log.error("DISKQUEUE(%s): its data files are missing, %d messages are lost", self.name,
                           max(self.depth, 0))
            self.read_number = self.write_number = max(self.read_number, self.write_number) + 1
            self.read_at = self.write_at = self.depth = 0
            return
        self.write_number = later[len(later) - 1]
        for number in later:
            at = self.read_at if number == self.read_number else 0
            records, end, damaged, size = self._scan(number, at)
            if at > size:
                # The file is shorter than what was read of it.
                self.read_at = size
            total += records
            if number != self.write_number:
                continue
            self.write_at = end
            if damaged:
                # Reading will find its way through it; writing goes to a new file.
                self.write_number, self.write_at = number + 1, 0
            elif end < size:
                self.log.error("DISKQUEUE(%s): %s ends with half a record: %d bytes cut off", self.name,
                               self.path_of(number), size - end)
                os.truncate(self.path_of(number), end)
            elif at > size:
                self.write_at = size
        self.log.warn("DISKQUEUE(%s): was not closed cleanly, %d messages found in its files", self.name, total)
        self.depth = total
        self.unsynced = 1
        self.syncer.began(self)
        self._check_first()

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
        self.syncer.deleted(self)

    cdef int _retire(self) except -1:
        """Renames all files, so that a queue of the same name can begin at once, and has them removed."""
        cdef int64_t number
        self.discard()
        self.depth = 0
        self.pool.close(&self.reading)
        self.pool.close(&self.writing)
        self.block_length = 0
        self.read_end = -1
        self.spans = None
        self.full_files = []
        for number in range(self.read_number, self.write_number + 1):
            diskmeta.retire(self.path_of(number), self.done_files)
        diskmeta.retire(self.meta_path, self.done_files)
        return 0

    def close(self):
        """Syncs and closes; positions are on disk when this returns. Raises OSError."""
        if self.closed:
            return
        error = self.flush()
        if error:
            raise OSError(error, os.strerror(error))
        self.syncer.finish(self)
        self.closed = True
        self.release()

    def release(self):
        """Gives back descriptors and memory that an idle queue needs not."""
        self.pool.close(&self.reading)
        self.pool.close(&self.writing)
        free(self.block)
        self.block = NULL
        self.block_length = self.block_room = 0
        if self.out_length == 0:
            free(self.out)
            self.out = NULL
            self.out_room = 0

    def looked(self) -> bool:
        """Whether it was read or written since the last call; for the idle check."""
        cdef bint was = self.active
        self.active = False
        return was

    def sync_began(self) -> tuple:
        """What a sync that begins now has to do: (paths to sync, positions, files to take away)."""
        cdef list paths = self.full_files
        cdef list done = self.done_files
        if self.write_at:
            paths = paths + [self.write_path]
        self.full_files = []
        self.done_files = []
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
        self.unsynced += 1

    # ------------------------------------------------------------------ for Python

    def put(self, bytes body not None, bytes message_id not None, timestamp_ns: int, attempts: int = 0):
        """Adds a record to the write buffer; message_id has 16 digits."""
        cdef Message *message = message_new(message_id, timestamp_ns, body, <unsigned int> len(body))
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
