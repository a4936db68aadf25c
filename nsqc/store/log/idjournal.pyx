"""The ids of a log's publishes, on disk. See the .pxd."""

cimport cython
from libc.errno cimport ENOENT
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memmove, memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_sync_data, io_sync_path, io_write
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.openfiles cimport stays_open, was_closed
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

import os
import re

cdef enum:
    FILE_MAGIC = 0x6E714964
    BLOCK_MAGIC = 0x6E714962
    VERSION = 1
    FILE_HEAD = 40
    BLOCK_HEAD = 32
    KEY_AT = 16
    CRC_AT = 4                  # in both heads; it covers what follows
    PARTS = 4                   # files that the ids of one window are divided into

cdef int64_t LEAST_NS = 1_000_000_000    # that a file is used for
cdef object NAME = re.compile(r"ids\.([0-9]{6,13})")


# ---------------------------------------------------------------------- on a thread

cdef int ids_write(IdWrite *job, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_head[FILE_HEAD]
    cdef int64_t written
    cdef int error = 0
    cdef bint begins = job.position == 0
    if job.fd < 0:
        path_of(c_path, job.c_folder, job.number)
        job.fd = io_open(c_path, O_RDWR | O_CREAT | (O_TRUNC if job.position == 0 else 0))
        if job.fd < 0:
            error = -job.fd
            job.fd = -1
            return error
    if job.position == 0:
        set_head(job, c_head)
        error = io_write(job.fd, c_head, FILE_HEAD, 0, &written)
        job.position = FILE_HEAD
    if error == 0:
        error = io_write(job.fd, job.out.c_data, job.out.length, job.position, &written)
    if error == 0 and syncs:
        error = io_sync_data(job.fd)
    if error == 0 and syncs and begins:
        error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)      # its name, before the records, too
    while error == 0 and job.oldest < job.keeps:
        path_of(c_path, job.c_folder, job.oldest)
        unlink(c_path)
        job.oldest += 1
    return error


cdef void path_of(char *c_path, const char *c_folder, int64_t number) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/ids.%06lld", c_folder, <long long> number)


cdef void set_head(const IdWrite *job, char *c_head) noexcept nogil:
    memset(c_head, 0, FILE_HEAD)
    store_i32(c_head, FILE_MAGIC)
    store_i32(c_head + 8, VERSION)
    memcpy(c_head + KEY_AT, job.key, 16)
    store_i64(c_head + 32, <int64_t> job.log_id)
    store_i32(c_head + CRC_AT, <int> crc32c(<const unsigned char *> c_head + 8, FILE_HEAD - 8))


cdef void set_block_head(char *c_block, int64_t length, int64_t offset, int64_t wall_ns) noexcept nogil:
    """length: of the block, whose ids are there."""
    memset(c_block, 0, BLOCK_HEAD)
    store_i32(c_block, BLOCK_MAGIC)
    store_i32(c_block + 8, <int> ((length - BLOCK_HEAD) // ID_BYTES))
    store_i64(c_block + 16, offset)
    store_i64(c_block + 24, wall_ns)
    store_i32(c_block + CRC_AT, <int> crc32c(<const unsigned char *> c_block + 8, length - 8))


cdef void ids_free(IdWrite *job) noexcept nogil:
    buffer_free(&job.out)
    if job.fd >= 0:
        close(job.fd)
    job.fd = -1


# ---------------------------------------------------------------------- on the loop

@cython.final
@cython.no_gc_clear     # __dealloc__ closes a file
cdef class IdJournal:
    """Collects the ids of a commit, and knows the files."""

    def __cinit__(self):
        self.fd = -1
        self.lost_from = -1
        self.ended = []

    def __init__(self, str folder not None, log):
        self.folder = folder
        self.c_folder = os.fsencode(folder)
        self.log = log

    def __dealloc__(self):
        self.close_file()
        buffer_free(&self.out)

    cdef void close_file(self) noexcept:
        if self.fd >= 0:
            close(self.fd)
            was_closed(1)
        self.fd = -1

    cdef int reserve(self, int64_t ids) noexcept:
        return buffer_room(&self.out, BLOCK_HEAD + ids * ID_BYTES)

    cdef void add(self, const PublishId *id, int64_t index) noexcept:
        cdef char *c_to
        if self.reserve(1) < 0:
            return      # it was reserved before
        if self.out.length == 0:
            self.out.length = BLOCK_HEAD
        c_to = self.out.c_data + self.out.length
        memcpy(c_to, id, 16)
        store_i32(c_to + 16, <int> index)
        self.out.length += ID_BYTES

    cdef void drop(self) noexcept:
        self.out.length = 0

    cdef void begin_anew(self, PublishIds ids) noexcept:
        self.drop()
        self.key[0] = ids.key[0]
        self.key[1] = ids.key[1]
        self.window_ns = ids.window_ns
        self.begun_ns = INT64_MAX       # the next write begins a file

    cdef void take(self, IdWrite *job, uint64_t log_id, int64_t offset, int64_t wall_ns) noexcept:
        if self.out.length == 0:
            if self.reserve(0) < 0:
                return      # the next append takes back what this one cannot
            self.out.length = BLOCK_HEAD
        try:
            if (self.number == 0 or wall_ns < self.begun_ns
                    or wall_ns - self.begun_ns > max(self.window_ns // PARTS, LEAST_NS)):
                self._next_file(wall_ns)
        except Exception as error:
            self.log.error("LOG: failed to begin a file of publish ids in %s - %r", self.folder, error)
        job.log_id = log_id
        self._set_block(job, offset, wall_ns)
        if 0 <= self.lost_from < offset:
            self._put_end_before(job, wall_ns)

    cdef void _put_end_before(self, IdWrite *job, int64_t wall_ns) noexcept:
        """Without memory for it, the ids that are lost count again after the next start."""
        if buffer_room(&job.out, BLOCK_HEAD) == 0:
            memmove(job.out.c_data + BLOCK_HEAD, job.out.c_data, <size_t> job.out.length)
            set_block_head(job.out.c_data, BLOCK_HEAD, self.lost_from, wall_ns)
            job.out.length += BLOCK_HEAD

    cdef void _set_block(self, IdWrite *job, int64_t offset, int64_t wall_ns) noexcept:
        set_block_head(self.out.c_data, self.out.length, offset, wall_ns)
        self.last_ns = max(self.last_ns, wall_ns)
        job.out = self.out
        memset(&self.out, 0, sizeof(Buffer))
        job.c_folder = self.c_folder
        job.key[0] = self.key[0]
        job.key[1] = self.key[1]
        job.number = self.number
        job.position = self.position
        job.oldest = self.oldest
        job.keeps = (<int64_t> self.ended[0][0]) if self.ended else self.number
        job.fd = self.fd
        if self.fd >= 0:
            was_closed(1)
        self.fd = -1

    cdef int _next_file(self, int64_t wall_ns) except -1:
        self.close_file()
        if self.number:
            self.ended.append((self.number, self.last_ns))
        self.number += 1
        if self.oldest == 0:
            self.oldest = self.number
        self.position = 0
        self.begun_ns = wall_ns
        while self.ended and self.ended[0][1] + self.window_ns < wall_ns:
            self.ended.pop(0)
        return 0

    cdef void ended_with(self, IdWrite *job, int error) noexcept:
        if job.out.length == 0:
            return
        # A block that is not followed by its records counts until another one takes its place.
        self.takes_back = error != 0
        self.oldest = job.oldest
        if error == 0:
            self.lost_from = -1
            self.position = job.position + job.out.length
            if job.fd >= 0 and stays_open(1):
                self.fd = job.fd
                job.fd = -1
        ids_free(job)


# ---------------------------------------------------------------------- at a start

def load(str folder not None, uint64_t log_id, int64_t end, int64_t window_ns, int64_t limit, int64_t wall_ns,
         int64_t monotonic_ns, log):
    """What the files of a log have: (PublishIds, IdJournal). end: the offset after the last record that there is."""
    cdef IdJournal journal = IdJournal(folder, log)
    cdef PublishIds ids
    cdef list files = [(number, read_file(path, log_id, log)) for number, path in files_in(folder)]
    cdef bytes key = None
    cdef list blocks = []
    for _, data in files:
        if data is not None:
            key = data[KEY_AT:KEY_AT + 16]      # of the newest
    ids = PublishIds(window_ns, limit, key)
    for _, data in files:
        if data is not None and data[KEY_AT:KEY_AT + 16] == key:
            blocks += blocks_in(data)
    journal.takes_back = restore(ids, blocks, end, wall_ns, monotonic_ns)
    if journal.takes_back:
        journal.lost_from = end
    adopt(journal, ids, files, wall_ns)
    return ids, journal


cdef int adopt(IdJournal journal, PublishIds ids, list files, int64_t wall_ns) except -1:
    """A run begins a file of its own: the end of the last one may be torn. That of an earlier run has at most what is
    remembered now."""
    journal.begin_anew(ids)
    if files:
        journal.oldest = files[0][0]
        journal.ended = [(number, wall_ns) for number, _ in files]
        journal.number = files[len(files) - 1][0]
        journal.ended.pop()
        journal.last_ns = wall_ns
    return 0


cdef list files_in(str folder):
    """(number, path) of the files, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((int(match[1]), os.path.join(folder, match[0])) for match in map(NAME.fullmatch, names) if match)


cdef object read_file(str path, uint64_t log_id, log):
    """Its bytes; None: it is of no use."""
    cdef const char *c_head
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        log.error("LOG: failed to read publish ids: publishes that are retried now may be stored again - %s", error)
        return None
    if len(data) < FILE_HEAD:
        return None
    c_head = data
    if (load_i32(c_head) != FILE_MAGIC or load_i32(c_head + 8) != VERSION
            or <uint32_t> load_i32(c_head + CRC_AT) != crc32c(<const unsigned char *> c_head + 8, FILE_HEAD - 8)
            or <uint64_t> load_i64(c_head + 32) != log_id):
        log.warn("LOG: %s has no publish ids of this log and is left out", path)
        return None
    return data


cdef list blocks_in(bytes data):
    """The blocks of a file, up to the first that is not whole."""
    cdef const char *c_data = data
    cdef int64_t at = FILE_HEAD, length, left
    cdef list found = []
    while True:
        left = len(data) - at
        if left < BLOCK_HEAD or load_i32(c_data + at) != BLOCK_MAGIC:
            return found
        length = BLOCK_HEAD + <int64_t> <uint32_t> load_i32(c_data + at + 8) * ID_BYTES
        if length > left or (<uint32_t> load_i32(c_data + at + CRC_AT)
                             != crc32c(<const unsigned char *> c_data + at + 8, length - 8)):
            return found
        found.append((data, at))
        at += length


cdef int restore(PublishIds ids, list blocks, int64_t end, int64_t wall_ns, int64_t monotonic_ns) except -1:
    """Enters what counts; whether some does not."""
    cdef const char *c_block
    cdef const char *c_id
    cdef int64_t count, index, first, age_ns, at
    cdef PublishId id
    cdef bint left_out = False
    cdef list ends = [end] * len(blocks)        # offsets from which on the ids of a block do not count
    for index in range(len(blocks) - 2, -1, -1):
        c_block = (<const char *> <bytes> blocks[index + 1][0]) + <int64_t> blocks[index + 1][1]
        ends[index] = min(<int64_t> ends[index + 1], load_i64(c_block + 16))
    for index in range(len(blocks)):
        c_block = (<const char *> <bytes> blocks[index][0]) + <int64_t> blocks[index][1]
        count = <int64_t> <uint32_t> load_i32(c_block + 8)
        first = load_i64(c_block + 16)
        end = ends[index]
        age_ns = max(wall_ns - load_i64(c_block + 24), <int64_t> 0)
        for at in range(count):
            c_id = c_block + BLOCK_HEAD + at * ID_BYTES
            if first + <int64_t> <uint32_t> load_i32(c_id + 16) >= end:
                left_out = True
            elif age_ns <= ids.window_ns:
                memcpy(&id, c_id, 16)
                if ids.restore(&id, monotonic_ns, age_ns) < 0:
                    raise MemoryError
    return left_out


def remove(str folder not None):
    """Removes the files: ids are not remembered any more."""
    for _, path in files_in(folder):
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno != ENOENT:
                raise
