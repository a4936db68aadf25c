"""The ids of a log's publishes, on disk. See the .pxd."""

cimport cython
from libc.errno cimport ENOENT
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_sync_data, io_sync_path
from nsqc.store.log.buffer cimport buffer_free, buffer_room
from nsqc.store.log.frame cimport FRAME_ALIGN, RECORD_SIZE, is_offset
from nsqc.store.log.journalfile cimport OPS_AT, JournalFile, journal_append
from nsqc.store.log.openfiles cimport close_counted, count_open, too_many_open
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

import os
import re

cdef enum:
    KEY_BYTES = 16
    HEAD_BYTES = 24             # in the first frame of a file: the key, and the log's id
    PARTS = 4                   # files that the ids of one window are spread over
    MOST_REMOVED = 16           # files that one commit removes

cdef int64_t LEAST_NS = 1_000_000_000    # shortest use of a file
cdef object NAME = re.compile(r"ids\.([0-9]{6,13})")


# ---------------------------------------------------------------------- on a thread

cdef int ids_write(IdWrite *job, bint syncs) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_head[OPS_AT + HEAD_BYTES + FRAME_ALIGN]
    cdef JournalFile file
    cdef int64_t oldest = job.oldest
    cdef int error = 0
    cdef bint begins = job.position == 0
    file.number, file.position, file.begins = job.number, job.position, job.time_ns
    if job.fd < 0:
        path_of(c_path, job.c_folder, job.number)
        job.fd = io_open(c_path, O_RDWR | O_CREAT | (O_TRUNC if begins else 0))
        if job.fd < 0:
            error = -job.fd
            job.fd = -1
            return error
        count_open(1)
    file.fd = job.fd
    if begins:
        memcpy(c_head + OPS_AT, job.key, KEY_BYTES)
        store_i64(c_head + OPS_AT + KEY_BYTES, <int64_t> job.log_id)
        error = journal_append(&file, c_head, OPS_AT + HEAD_BYTES, 0, 0)
    if error == 0 and job.lost_from >= 0:
        error = journal_append(&file, c_head, OPS_AT, job.lost_from, 0)
    error = error or journal_append(&file, job.out.c_data, job.out.length, job.offset, 0)
    job.position = file.position
    if error == 0 and syncs:
        error = io_sync_data(job.fd)
    if error == 0 and syncs and begins:
        error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)      # its name, too, before the records
    # Not all at once: the numbers between two existing files may be many.
    while error == 0 and job.oldest < min(job.keeps, oldest + MOST_REMOVED):
        path_of(c_path, job.c_folder, job.oldest)
        unlink(c_path)
        job.oldest += 1
    return error


cdef void path_of(char *c_path, const char *c_folder, int64_t number) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/ids.%06lld", c_folder, <long long> number)


cdef void ids_free(IdWrite *job) noexcept nogil:
    buffer_free(&job.out)
    close_counted(&job.fd)


# ---------------------------------------------------------------------- on the loop

@cython.final
@cython.no_gc_clear     # __dealloc__ closes a file
cdef class IdJournal:
    """Collects the ids of a commit, and manages the files."""

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
        close_counted(&self.fd)

    cdef int reserve(self, int64_t ids) noexcept:
        return buffer_room(&self.out, OPS_AT + ids * ID_BYTES + FRAME_ALIGN)

    cdef void add(self, const PublishId *id, int64_t index) noexcept:
        cdef char *c_to
        if self.reserve(1) < 0:
            return      # reserved before
        if self.out.length == 0:
            self.out.length = OPS_AT
        c_to = self.out.c_data + self.out.length
        memcpy(c_to, id, 16)
        store_i32(c_to + 16, <int> index)
        self.out.length += ID_BYTES

    cdef void drop(self) noexcept:
        self.out.length = 0

    cdef void restart(self, PublishIds ids) noexcept:
        self.drop()
        self.key[0] = ids.key[0]
        self.key[1] = ids.key[1]
        self.window_ns = ids.window_ns
        self.begun_ns = INT64_MAX       # the next write begins a file

    cdef void take(self, IdWrite *job, uint64_t log_id, int64_t offset, int64_t wall_ns) noexcept:
        if self.out.length == 0:
            if self.reserve(0) < 0:
                return      # the next append revokes those that this one cannot
            self.out.length = OPS_AT
        try:
            if (self.number == 0 or wall_ns < self.begun_ns
                    or wall_ns - self.begun_ns > max(self.window_ns // PARTS, LEAST_NS)):
                self._next_file(wall_ns)
        except Exception as error:
            self.log.error("LOG: failed to begin a file of publish ids in %s - %r", self.folder, error)
        job.log_id, job.offset, job.time_ns = log_id, offset, wall_ns
        job.lost_from = self.lost_from if self.lost_from < offset else -1
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
        job.fd, self.fd = self.fd, -1

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
        # A frame without its records counts until another frame takes its place.
        self.takes_back = error != 0
        self.oldest = job.oldest
        if error == 0:
            self.lost_from = -1
            self.position = job.position
            if not too_many_open():
                self.fd, job.fd = job.fd, -1
        ids_free(job)


# ---------------------------------------------------------------------- at a start

def load(str folder not None, uint64_t log_id, int64_t end, int64_t window_ns, int64_t limit, int64_t wall_ns,
         int64_t monotonic_ns, log):
    """Reads the files of a log: (PublishIds, IdJournal). end: the offset after the last existing record."""
    cdef IdJournal journal = IdJournal(folder, log)
    cdef PublishIds ids
    cdef list numbers = numbers_in(folder), blocks = []
    cdef list files = [read_file(folder, number, log_id, log) for number in numbers]
    cdef bytes key = None
    for head, _ in files:
        key = head or key       # of the newest file
    for head, its in files:
        if head == key:
            blocks += its
    ids = PublishIds(window_ns, limit, key)
    journal.takes_back = restore(ids, blocks, end, wall_ns, monotonic_ns)
    if journal.takes_back:
        journal.lost_from = end
    adopt(journal, ids, numbers, wall_ns)
    return ids, journal


cdef int adopt(IdJournal journal, PublishIds ids, list numbers, int64_t wall_ns) except -1:
    """Each run begins its own file: the end of the last one may be torn. Earlier runs' files hold at most the ids
    remembered now."""
    journal.restart(ids)
    if numbers:
        journal.oldest, journal.number = numbers[0], numbers[len(numbers) - 1]
        journal.ended = [(number, wall_ns) for number in numbers[:len(numbers) - 1]]
        journal.last_ns = wall_ns
    return 0


cdef list numbers_in(str folder):
    """Numbers of the files, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in map(NAME.fullmatch, names) if match)


cdef tuple read_file(str folder, int64_t number, uint64_t log_id, log):
    """(key, (offset, time, ids) of each frame up to the first torn one). None for the key: the file is useless."""
    cdef str path = f"{folder}/ids.{number:06}"
    cdef bytes head = b"", data
    cdef list blocks = []
    cdef int64_t size
    cdef Walk walk
    cdef int answer, fd = -1
    try:
        fd = os.open(path, O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)     # not to wait for the writer of a pipe
        size = os.fstat(fd).st_size
        walk_open(&walk, fd, number, 0, size, 0, INT64_MAX)
        answer = walk_next(&walk)
        while answer == 1 and walk.hole < 0 and is_offset(walk.frame.id):
            data = (walk_data(&walk) + OPS_AT)[:walk.frame.payload - RECORD_SIZE]
            if walk.position == 0:
                head = data
            else:
                blocks.append((walk.frame.id, walk.frame.time_ns, data))
            answer = walk_next(&walk)
        walk_free(&walk)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer), path)
    except OSError as error:
        log.error("LOG: failed to read publish ids: publishes that are retried now may be stored again - %s", error)
        return None, []
    finally:
        if fd >= 0:
            close(fd)
    if len(head) == HEAD_BYTES and <uint64_t> load_i64(<const char *> head + KEY_BYTES) == log_id:
        return head[:KEY_BYTES], blocks
    if size > OPS_AT + HEAD_BYTES:
        log.warn("LOG: %s has no publish ids of this log and is skipped", path)
    return None, []


cdef int restore(PublishIds ids, list blocks, int64_t end, int64_t wall_ns, int64_t monotonic_ns) except -1:
    """Enters the ids that count; returns whether some do not."""
    cdef const char *c_id
    cdef int64_t first, time_ns, age_ns, at
    cdef PublishId id
    cdef bytes data
    cdef list ends = []         # offsets from which a frame's ids do not count, in reverse order
    cdef bint left_out = False
    for first, _, _ in reversed(blocks):
        ends.append(end)
        end = min(end, first)
    for first, time_ns, data in blocks:
        end = ends.pop()
        age_ns = max(wall_ns - time_ns, <int64_t> 0)
        for at in range(0, len(data) - ID_BYTES + 1, ID_BYTES):
            c_id = <const char *> data + at
            if first + <int64_t> <uint32_t> load_i32(c_id + KEY_BYTES) >= end:
                left_out = True
            elif age_ns <= ids.window_ns:
                memcpy(&id, c_id, KEY_BYTES)
                if ids.restore(&id, monotonic_ns, age_ns) < 0:
                    raise MemoryError
    return left_out


def remove(str folder not None):
    """Removes the files when ids are no longer remembered."""
    for number in numbers_in(folder):
        try:
            os.unlink(f"{folder}/ids.{number:06}")
        except OSError as error:
            if error.errno != ENOENT:
                raise
