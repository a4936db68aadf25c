"""Frames in memory as columns, lines and tuples. See the .pyi.

Rows are counted and measured while their frames are checked, so each column is allocated once, at its final size. A
body is copied once; all other columns are computed from the heads of frames.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from nsqc.store.guid cimport guid_after, guid_write, guid_write_range
from nsqc.store.log.array cimport array_room
from nsqc.store.log.frame cimport (DELAY_BYTES, FRAME_ALIGN, FRAME_FULL, FRAME_HEAD, FRAME_SHORT, FRAME_SOUND,
                                   MOST_ORIGIN, RECORD_SIZE, Frame, FrameCheck, frame_check, frame_load, frame_origin,
                                   record_length)
from nsqc.store.log.manifest cimport Manifest, manifest_load
from nsqc.store.log.read cimport ReadFrames, read_free, run_read
from nsqc.store.log.segmenthead cimport HEAD_SOUND
from nsqc.store.log import names

MEDIA_TYPE = "application/vnd.nsqc.frames"
VALUE, TIMESTAMP, ID, OFFSET, ORIGIN = 1, 2, 4, 8, 16
FRAME_MORE = FRAME_HEAD + RECORD_SIZE + DELAY_BYTES + RECORD_SIZE + MOST_ORIGIN + FRAME_ALIGN
FRAME_MOST = FRAME_HEAD + FRAME_FULL + FRAME_FULL // RECORD_SIZE * DELAY_BYTES + FRAME_ALIGN

cdef enum:
    WANT_VALUE = 1
    WANT_TIMESTAMP = 2
    WANT_ID = 4
    WANT_OFFSET = 8
    WANT_ORIGIN = 16
    ID_BYTES = 16
    NS_PER_US = 1000
    FIRST_PARTS = 16
    FIRST_ROWS = 1024
    FULL = 0x7F000000       # bytes of bodies in one batch: body offsets have 32 bits

cdef enum BlockError:
    NO_ERROR
    NO_FRAME
    NO_RECORD               # the frames lack some of the records
    NO_MEMORY

cdef int64_t most_offset = names.MOST_OFFSET


@cython.final
cdef class LogBlock:
    """Records of frames."""

    def __dealloc__(self):
        free(self.parts)
        free(self.ends)

    def __init__(self, const unsigned char[::1] data not None, length, uint64_t salt, int64_t position, int64_t first,
                 int64_t end):
        if self.owner is not None:
            raise ValueError("this block has its records")
        if data.shape[0] > <Py_ssize_t> UINT32_MAX:
            raise ValueError(f"{data.shape[0]} bytes")
        if not 0 <= first <= end <= most_offset or position < 0:
            raise ValueError(f"offsets {first} to {end} at position {position}")
        self.owner = data
        self.size = data.shape[0]
        self.c_data = <const char *> &data[0] if self.size else NULL
        self.salt, self.position = salt, position
        self.first, self.next = first, end
        if length is not None:
            self.more(length)
            self.complete(length)

    def more(self, int64_t length):
        """See the .pyi."""
        cdef int error
        if not self.checked <= length <= self.size:
            raise ValueError(f"{length} bytes of {self.size}")
        with nogil:
            error = self.check(length)
        if error == NO_MEMORY:
            raise MemoryError
        if error == NO_FRAME:
            raise ValueError(f"no frame of the log at byte {self.checked} of {length}")
        if error:
            raise ValueError(f"its frames do not have the records {self.first} to {self.next}")

    def complete(self, int64_t length):
        """See the .pyi."""
        if self.checked != length:
            raise ValueError(f"no frame of the log at byte {self.checked} of {length}")
        if self.rows != self.next - self.first:
            raise ValueError(f"its frames do not have the records {self.first} to {self.next}")

    cdef int check(self, int64_t length) noexcept nogil:
        cdef FrameCheck answer
        cdef Frame frame
        cdef int error
        while self.checked < length:
            answer = frame_check(self.c_data + self.checked, length - self.checked, self.salt,
                                 self.position + self.checked, &frame)
            if answer != FRAME_SOUND:
                return NO_ERROR if answer == FRAME_SHORT else NO_FRAME
            if not 0 <= frame.first <= most_offset or (self.checked and frame.first != self.following):
                return NO_RECORD
            error = self.add(&frame, self.checked)
            if error:
                return error
            self.following = frame.first + frame.records
            self.checked += frame.length
        return NO_ERROR

    cdef int add(self, const Frame *frame, int64_t at) noexcept nogil:
        cdef const char *c_record = self.c_data + at + FRAME_HEAD
        cdef int64_t skipped = max(self.first - frame.first, <int64_t> 0), size, index
        cdef int64_t count = min(self.next - frame.first, <int64_t> frame.records) - skipped
        cdef uint32_t total = self.ends[self.rows - 1] if self.rows else 0
        cdef const char *c_origin
        if count <= 0:
            return NO_ERROR
        c_origin = frame_origin(self.c_data + at, frame, skipped)
        if frame.first + skipped != self.first + self.rows:
            return NO_RECORD
        if (array_room(<void **> &self.parts, &self.part_room, self.part_count + 1, sizeof(FramePart), FIRST_PARTS) < 0
                or array_room(<void **> &self.ends, &self.room, self.rows + count, sizeof(uint32_t), FIRST_ROWS) < 0):
            return NO_MEMORY
        for _ in range(skipped):
            c_record += record_length(c_record)
        if self.rows == 0:
            self.c_record = c_record
            self.c_origin = c_origin
        self.parts[self.part_count].row = self.rows
        self.parts[self.part_count].time_ns = frame.time_ns
        self.parts[self.part_count].id = guid_after(frame.id, skipped)
        self.parts[self.part_count].at = c_record - self.c_data
        self.parts[self.part_count].origin_at = c_origin - self.c_data if c_origin is not NULL else 0
        self.part_count += 1
        for index in range(self.rows, self.rows + count):
            size = record_length(c_record) - RECORD_SIZE
            total += <uint32_t> size
            self.ends[index] = total
            self.largest = max(self.largest, size)
            c_record += RECORD_SIZE + size
        self.rows += count
        return NO_ERROR if self.largest <= FULL else NO_RECORD

    # ------------------------------------------------------------------ rows

    cdef int64_t size_of(self, int64_t count) noexcept nogil:
        cdef int64_t before = self.ends[self.row - 1] if self.row else 0
        return self.ends[self.row + count - 1] - before if count else 0

    cdef int64_t in_part(self, int64_t count) noexcept nogil:
        cdef int64_t end = self.parts[self.part + 1].row if self.part + 1 < self.part_count else self.rows
        return min(count, end - self.row)

    cdef void pass_over(self, int64_t count) noexcept nogil:
        self.c_record += self.size_of(count) + RECORD_SIZE * count
        self.row += count
        if self.c_origin is not NULL:
            for _ in range(count):
                self.c_origin += record_length(self.c_origin)
        if self.in_part(1) == 0 and self.row < self.rows:
            self.part += 1
            self.c_record = self.c_data + self.parts[self.part].at
            self.c_origin = self.c_data + self.parts[self.part].origin_at if self.parts[self.part].origin_at else NULL

    cdef int64_t fitting(self, int64_t max_rows, int64_t max_bytes) noexcept nogil:
        """How many of the next rows fit into a batch: at least one."""
        cdef int64_t low = 1, high = max(min(max_rows, self.rows - self.row), <int64_t> 1), middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.size_of(middle) <= max_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def batch(self, int64_t max_rows, int64_t max_bytes, int wanted):
        """See the .pyi."""
        cdef int64_t rows, done = 0, count, row
        cdef uint32_t before
        cdef FramePart *part
        cdef bytes bodies, ends, times, ids, offsets
        cdef char *c_bodies
        cdef char *c_ids
        cdef int32_t *c_ends
        cdef int64_t *c_times
        cdef int64_t *c_offsets
        if self.row == self.rows:
            return None
        rows = self.fitting(max_rows, min(max_bytes, <int64_t> FULL))
        origins = self.origins(rows) if wanted & WANT_ORIGIN else None
        bodies = column(wanted & WANT_VALUE, self.size_of(rows))
        ends = column(wanted & WANT_VALUE, 4 * (rows + 1))
        times = column(wanted & WANT_TIMESTAMP, 8 * rows)
        ids = column(wanted & WANT_ID, ID_BYTES * rows)
        offsets = column(wanted & WANT_OFFSET, 8 * rows)
        c_bodies, c_ids = PyBytes_AS_STRING(bodies), PyBytes_AS_STRING(ids)
        c_ends = <int32_t *> PyBytes_AS_STRING(ends)
        c_times, c_offsets = <int64_t *> PyBytes_AS_STRING(times), <int64_t *> PyBytes_AS_STRING(offsets)
        with nogil:
            if wanted & WANT_OFFSET:
                for row in range(rows):
                    c_offsets[row] = self.first + self.row + row
            if wanted & WANT_VALUE:
                before = self.ends[self.row - 1] if self.row else 0
                c_ends[0] = 0
                for row in range(rows):
                    c_ends[row + 1] = <int32_t> (self.ends[self.row + row] - before)
            while done < rows:
                count = self.in_part(rows - done)
                if wanted & WANT_TIMESTAMP:
                    fill_times(self, c_times + done, count)
                if wanted & WANT_ID:
                    part = &self.parts[self.part]
                    guid_write_range(guid_after(part.id, self.row - part.row), count, c_ids + ID_BYTES * done)
                if wanted & WANT_VALUE:
                    c_bodies = copy_bodies(self, c_bodies, count, NULL, 0, NULL, 0)
                self.pass_over(count)
                done += count
        return rows, bodies, ends, times, ids, offsets, origins

    def origins(self, int64_t rows):
        """The origins of the next rows; None: no row has one."""
        cdef int64_t row = self.row, end = self.row + rows, part = self.part, part_end
        cdef const char *c_origin = self.c_origin
        cdef list found = []
        cdef bint some = False
        while row < end:
            part_end = self.parts[part + 1].row if part + 1 < self.part_count else self.rows
            if c_origin is NULL:
                found.extend([None] * (min(part_end, end) - row))
                row = min(part_end, end)
            else:
                some = True
            while row < min(part_end, end):
                found.append(origin_text(c_origin))
                c_origin += record_length(c_origin)
                row += 1
            part += 1
            if row < end:
                c_origin = self.c_data + self.parts[part].origin_at if self.parts[part].origin_at else NULL
        return found if some else None

    def lines(self, int64_t most, bytes prefix not None, bytes suffix not None):
        """See the .pyi."""
        cdef int64_t rows = max(min(most, self.rows - self.row), <int64_t> 0), done = 0, count
        cdef int64_t before = len(prefix), after = len(suffix)
        cdef const char *c_prefix = prefix
        cdef const char *c_suffix = suffix
        cdef bytes text = PyBytes_FromStringAndSize(NULL, self.size_of(rows) + rows * (before + after))
        cdef char *c_to = PyBytes_AS_STRING(text)
        with nogil:     # another thread is receiving
            while done < rows:
                count = self.in_part(rows - done)
                c_to = copy_bodies(self, c_to, count, c_prefix, before, c_suffix, after)
                self.pass_over(count)
                done += count
        return text, rows

    def __iter__(self):
        return self

    def __next__(self):
        cdef FramePart *part
        cdef char c_id[ID_BYTES]
        cdef int64_t offset = self.first + self.row, size
        cdef bytes body
        cdef object origin
        if self.row == self.rows:
            raise StopIteration
        part = &self.parts[self.part]
        guid_write(guid_after(part.id, self.row - part.row), c_id)
        size = self.size_of(1)
        body = self.c_record[RECORD_SIZE:RECORD_SIZE + size]
        time_ns = part.time_ns
        origin = origin_text(self.c_origin)
        self.pass_over(1)
        return offset, time_ns, c_id[:ID_BYTES].decode("ascii"), body, origin


cdef object origin_text(const char *c_origin):
    """NULL gives None."""
    if c_origin is NULL:
        return None
    return c_origin[RECORD_SIZE:record_length(c_origin)].decode("utf-8", "replace")


cdef bytes column(bint wanted, int64_t length):
    """Memory for a column; empty if it is not wanted."""
    return PyBytes_FromStringAndSize(NULL, length if wanted else 0)


cdef void fill_times(LogBlock block, int64_t *c_to, int64_t count) noexcept nogil:
    cdef int64_t time_us = block.parts[block.part].time_ns // NS_PER_US, row
    for row in range(count):
        c_to[row] = time_us


cdef char *copy_bodies(LogBlock block, char *c_to, int64_t count, const char *c_prefix, int64_t before,
                       const char *c_suffix, int64_t after) noexcept nogil:
    """Returns where the next body goes."""
    cdef const char *c_record = block.c_record
    cdef int64_t size
    for _ in range(count):
        size = record_length(c_record) - RECORD_SIZE
        if before:
            memcpy(c_to, c_prefix, <size_t> before)
        memcpy(c_to + before, c_record + RECORD_SIZE, <size_t> size)
        if after:
            memcpy(c_to + before + size, c_suffix, <size_t> after)
        c_to += before + size + after
        c_record += RECORD_SIZE + size
    return c_to


@cython.final
cdef class BlockMemory:
    """The result of a read, for as long as a block uses it."""

    def __cinit__(self):
        memset(&self.job, 0, sizeof(self.job))

    def __dealloc__(self):
        read_free(&self.job)


@cython.final
cdef class SegmentBlocks:
    """Reads blocks from files."""

    def __cinit__(self):
        self.known = -1

    def read(self, int file, segment not None, int64_t offset, int64_t end, int64_t max_bytes):
        """See the .pyi."""
        cdef LogBlock block = LogBlock.__new__(LogBlock)
        cdef ReadFrames *job
        cdef int error
        if self.memory is None or Py_REFCNT(self.memory) > 1:
            self.memory = BlockMemory.__new__(BlockMemory)
        job = &self.memory.job
        job.position = self.after if offset == self.known and segment[0] == self.first else 0
        self.first, self.known = segment[0], -1
        job.first, job.end, job.limit, job.salt = segment[0], segment[1], segment[2], segment[3]
        job.offset, job.want = offset, max_bytes
        job.keeps_open, job.fd = True, file
        with nogil:
            run_read(&job.job)
        if job.error or job.begin != offset or job.next <= offset or end <= offset:
            return None
        self.known, self.after = job.next, job.after
        block.owner = self.memory
        block.c_data = job.memory.c_data + job.at
        block.first, block.next = offset, min(end, job.next)
        with nogil:
            error = take_frames(block, job.length)
        if error == NO_MEMORY:
            raise MemoryError
        return None if error or block.rows != block.next - block.first else block


cdef int take_frames(LogBlock block, int64_t length) noexcept nogil:
    """Takes the records of checked frames."""
    cdef Frame frame
    cdef int64_t at = 0
    cdef int error = NO_ERROR
    while at < length and error == NO_ERROR:
        frame_load(block.c_data + at, &frame)
        error = block.add(&frame, at)
        at += frame.length
    return error


def manifest_id(const unsigned char[::1] data not None):
    """See the .pyi."""
    cdef Manifest manifest
    if data.shape[0] == 0 or manifest_load(<const char *> &data[0], data.shape[0], &manifest) != HEAD_SOUND:
        return None
    return manifest.log_id
