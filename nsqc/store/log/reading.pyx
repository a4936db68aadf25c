"""Reading a log: one frame reader for cursors, HTTP, Spark and tools. See the .pxd."""

cimport cython
import os
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_REFCNT
from libc.errno cimport EAGAIN, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close
from typing import NamedTuple

from nsqc.store.disk.fileio cimport PATH_BYTES, close_counted, count_open, io_open, too_many_open
from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.log.frame cimport (DELAY_BYTES, FRAME_ALIGN, FRAME_FULL, FRAME_HEAD, FRAME_SHORT, FRAME_SOUND,
                                   HASH_BYTES, MOST_OFFSET, MOST_ORIGIN, RECORD_SIZE, Buffer, Frame, FrameCheck, Walk,
                                   array_room, buffer_free, buffer_room, frame_check, frame_load, frame_origin,
                                   is_offset, line_bytes, put_line, record_length, walk_data, walk_free, walk_next,
                                   walk_open, walk_to)
from nsqc.store.log.segment cimport FRAMES_AT, Segment, frames_path, index_position
from nsqc.store.message cimport guid_after, guid_write, guid_write_range
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16


# ====================================================================== read

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long long offset, long long length, int advice)
    int POSIX_FADV_WILLNEED

cdef enum:
    AHEAD_BYTES = 4194304       # the kernel reads this far ahead after a read that had to wait


cdef void read_free(ReadFrames *job) noexcept nogil:
    buffer_free(&job.memory)
    job.length = 0
    job.begin = job.next = -1


cdef void run_read(Job *c_job) noexcept nogil:
    cdef ReadFrames *job = <ReadFrames *> c_job
    cdef char c_path[PATH_BYTES]
    job.begin = job.next = job.offset
    job.damaged = job.length = job.error = 0
    if not job.keeps_open or job.fd < 0:
        frames_path(c_path, job.c_folder, job.first, job.remote)
        job.fd = io_open(c_path, O_RDONLY)
        if job.fd < 0:
            job.error = -job.fd
            job.fd = -1
            return
        count_open(job.keeps_open)
    job.error = -read_block(job)
    if not job.keeps_open:
        close(job.fd)
        job.fd = -1


cdef int read_block(ReadFrames *job) noexcept nogil:
    """0 or -errno."""
    cdef Walk walk
    cdef int answer
    walk_open(&walk, job.fd, job.salt, job.position, job.limit, job.first, job.end)
    walk.cached = job.cached
    walk.memory = job.memory        # reused
    walk.memory.length = 0
    walk.step = max(job.want, <int64_t> FRAME_HEAD)
    if job.position == 0 and job.cached:
        answer = -EAGAIN        # a thread has to read the index
    else:
        if job.position == 0:
            walk.next = index_position(job.fd, job.salt, job.offset, 0)
        answer = walk_to(&walk, job.offset, INT64_MIN)
    if answer == 1:
        take_block(job, &walk)
    elif answer == 0:
        job.damaged = job.end - job.offset      # no more frames
        job.begin = job.next = job.end
    job.memory = walk.memory
    return min(answer, 0)


cdef void take_block(ReadFrames *job, Walk *walk) noexcept nogil:
    """Takes the frame, and the following ones from the same read."""
    cdef Frame frame
    cdef int64_t have, next_ = walk.frame.first + walk.frame.records
    job.at = walk.position - walk.start
    job.begin = max(job.offset, walk.frame.first)
    job.damaged = job.begin - job.offset
    job.after = walk.next
    while next_ < job.end:
        have = walk.start + walk.memory.length - job.after
        if (frame_check(walk.memory.c_data + (job.after - walk.start), have, job.salt, job.after,
                        &frame) != FRAME_SOUND or frame.first != next_ or job.after + frame.length > job.limit):
            break
        job.after += frame.length
        next_ += frame.records
    job.next = min(next_, job.end)
    job.length = job.after - walk.position
    if not job.cached:
        posix_fadvise(job.fd, job.after, AHEAD_BYTES, POSIX_FADV_WILLNEED)


cdef const char *spot_find(Spot *spot, const char *c_data, int64_t offset) noexcept nogil:
    cdef int64_t target
    if spot.frame.records == 0 or offset < spot.frame.first:
        spot.at = 0
        enter(spot, c_data)
    while offset >= spot.frame.first + spot.frame.records:
        spot.at += spot.frame.length
        enter(spot, c_data)
    target = offset - spot.frame.first
    if target < spot.index:
        spot.index = 0
        spot.record_at = spot.at + FRAME_HEAD
    while spot.index < target:
        spot.record_at += record_length(c_data + spot.record_at)
        spot.index += 1
    return c_data + spot.record_at


cdef inline void enter(Spot *spot, const char *c_data) noexcept nogil:
    frame_load(c_data + spot.at, &spot.frame)
    spot.index = 0
    spot.record_at = spot.at + FRAME_HEAD


# ---------------------------------------------------------------------- on the loop

cdef void reader_release(Reader *reader) noexcept:
    if not reader.running:
        read_free(&reader.block)
        reader.block.want = 0
        memset(&reader.spot, 0, sizeof(Spot))


cdef void reader_forget(Reader *reader) noexcept:
    if reader.running:
        reader.stale = True
    else:
        reader.block.begin = reader.block.next = -1
        memset(&reader.spot, 0, sizeof(Spot))


cdef void file_lend(OpenFile *file, ReadFrames *job) noexcept:
    job.keeps_open = True
    job.fd = file.fd if file.first == job.first else -1


cdef bint file_return(OpenFile *file, ReadFrames *job, bint closed) noexcept:
    cdef bint sound = job.error == 0 or job.error == EAGAIN
    cdef int fd = job.fd
    job.keeps_open = False
    job.fd = -1
    if fd < 0:
        return False
    if fd == file.fd:
        if not sound:
            file_close(file)        # the next read opens the current file
        return False
    file_close(file)
    if closed or not sound or too_many_open():
        close_counted(&fd)
        return False
    file.first = job.first
    file.fd = fd
    return True


cdef void file_close(OpenFile *file) noexcept:
    close_counted(&file.fd)


cdef void file_gone(OpenFile *file, int64_t first, int64_t end) noexcept:
    if first <= file.first < end:
        file_close(file)


# ====================================================================== readers

cdef enum:
    MOST_WOKEN = 64             # readers per loop iteration: each builds its answer then


@cython.final
cdef class Readers:
    """Readers waiting for a record of a log."""

    def __init__(self, loop: AbstractEventLoop):
        self.loop = loop
        self.waiting = {}
        self.woken = []

    cdef WaitsForRecords add(self, int64_t offset, call):
        cdef WaitsForRecords waits = WaitsForRecords.__new__(WaitsForRecords)
        waits.readers = self
        waits.offset = offset
        waits.call = call
        self.waiting[waits] = None
        return waits

    cdef void wake(self, int64_t end, bint closed) noexcept:
        cdef WaitsForRecords waits
        cdef bint scheduled = len(self.woken) > 0
        if self.waiting:
            for waits in list(self.waiting):
                if waits.offset < end or closed:
                    self.woken.append(waits)
                    del self.waiting[waits]
        if closed:
            self.loop = None
        if self.woken and (closed or not scheduled):
            self.wake_some()

    def wake_some(self):
        """Calls the longest waiting readers; the others follow in the next loop iterations."""
        cdef WaitsForRecords waits
        cdef list woken = self.woken
        if self.loop is None:
            self.woken = []
        else:
            woken, self.woken = woken[:MOST_WOKEN], woken[MOST_WOKEN:]
        for waits in woken:
            if waits.call is not None:
                waits.call()
        if self.woken:
            self.loop.call_soon(self.wake_some)


@cython.final
cdef class WaitsForRecords:
    """Calls a function once a log has a record at an offset, unless it is cancelled."""

    def expire(self):
        """Calls the function in one of the next loop iterations: many may expire at once."""
        cdef Readers readers = self.readers
        if readers is None or self not in readers.waiting:
            return
        del readers.waiting[self]
        if not readers.woken:
            readers.loop.call_soon(readers.wake_some)
        readers.woken.append(self)

    def cancel(self):
        """Cancels the call."""
        self.call = None
        if self.readers is not None:
            self.readers.waiting.pop(self, None)    # an idle log may be polled for long


# ====================================================================== reading
# Records of a segment, read by offset or time. One walk (take_run) makes all of it.

class Run(NamedTuple):
    """Consecutive valid frames, and which of their records are wanted."""

    first: int          # offset of the first record
    next: int           # after the last
    start: int          # position of the first frame
    end: int            # after the last
    last: int           # position of the last frame
    damaged: int        # lost records before the first
    lines: int          # bytes of the records as lines of JSON; 0 unless asked for


cdef enum Output:
    FRAMES                      # only their place
    MEASURED                    # the size of the records as lines
    LINES                       # of JSON
    RECORDS                     # in the format of disk queues

cdef struct Span:               # as Run
    int64_t first, next, start, end, last, damaged, lines
    int64_t following           # position of the frame with the next record
    Buffer text                 # owned: LINES or RECORDS


cdef Segment struct_of(segment) except *:
    """The fields of a nsqc.store.log.names.Segment that a walk needs."""
    cdef Segment its
    its.first, its.end, its.position, its.salt = segment[:4]
    return its


cdef int check(int answer) except -1:
    """Raises the OSError of a walk's answer below 0."""
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return 0


cdef int go_to(Walk *walk, int fd, const Segment *its, int64_t offset, int64_t position) noexcept nogil:
    """Walks to the first frame with an offset or a later one, as walk_to()."""
    if position == 0:
        position = FRAMES_AT if offset <= its.first else index_position(fd, its.salt, offset, 0)
    walk_open(walk, fd, its.salt, position, its.position, its.first, its.end)
    return walk_to(walk, offset, INT64_MIN)


# ---------------------------------------------------------------------- runs

cdef int read_run(int fd, const Segment *its, int64_t offset, int64_t position, int64_t end, int64_t most,
                  int64_t max_bytes, Output output, Span *span) noexcept nogil:
    """The first run of records from an offset on: before `end`, at most `most`. 0 or -errno."""
    cdef Walk walk
    cdef int answer = go_to(&walk, fd, its, offset, position)
    memset(span, 0, sizeof(Span))
    span.first = span.next = its.end
    if answer == 1:
        span.first = span.next = max(offset, walk.frame.first)
        span.start = span.end = span.last = walk.position
        end = min(end, its.end)
        answer = take_run(&walk, min(end, span.first + min(most, end - span.first)), max_bytes, output, span)
    span.damaged = span.first - offset
    walk_free(&walk)
    return min(answer, 0)


cdef int take_run(Walk *walk, int64_t end, int64_t left, Output output, Span *span) noexcept nogil:
    """Takes frames from the current one on, up to a gap. 1, 0 or -errno."""
    cdef int answer = 1
    while answer == 1 and span.next < end:
        if span.end > span.start and (walk.frame.first != span.next or output == FRAMES and left < walk.frame.length):
            break       # damage, or enough
        if output == FRAMES:
            left -= walk.frame.length
            span.next = min(walk.frame.first + walk.frame.records, end)
        else:
            answer = put_some(walk, end, &left, output, span)
            if answer < 0:
                break
        span.last = walk.position
        span.end = span.following = walk.next
        if span.next < walk.frame.first + walk.frame.records:
            span.following = walk.position
            break
        if left <= 0:
            break
        answer = walk_next(walk)
    return answer


cdef int put_some(Walk *walk, int64_t end, int64_t *left, Output output, Span *span) noexcept nogil:
    """Takes records of a frame; with none left at the limit, which measured ones do not exceed. 1 or -ENOMEM."""
    cdef const char *c_data = walk_data(walk)
    cdef const char *c_record
    cdef int64_t before
    cdef int error = 0
    cdef Spot spot
    memset(&spot, 0, sizeof(spot))
    while span.next < min(end, walk.frame.first + walk.frame.records):
        c_record = spot_find(&spot, c_data, span.next)
        if span.next > span.first and left[0] < (record_length(c_record) if output == MEASURED else 1):
            left[0] = 0
            break
        before = span.text.length
        if output == MEASURED:
            span.lines += line_bytes(c_data, &spot.frame, c_record, spot.index)
            left[0] -= record_length(c_record)
        elif output == LINES:
            error = put_line(&span.text, c_data, &spot.frame, c_record, spot.index)
        else:
            error = put_record(&span.text, &spot.frame, c_record, spot.index)
        if error:
            return -error
        left[0] -= span.text.length - before
        span.next += 1
    return 1


def find_run(int fd, segment: Segment, int64_t offset, int64_t position, int64_t max_messages, int64_t max_bytes,
             bint as_lines) -> Run:
    """Finds the first run of frames from an offset on. Raises OSError.

    fd: of the segment. position: of a frame at or before the offset; 0: unknown. max_bytes: of frames, at least one;
    as lines, of records, at least one. Without a valid frame, first equals next.
    """
    cdef Segment its = struct_of(segment)
    cdef Span span
    cdef int answer
    with nogil:
        answer = read_run(fd, &its, offset, position, its.end, max_messages, max_bytes,
                          MEASURED if as_lines else FRAMES, &span)
    check(answer)
    return Run(span.first, span.next, span.start, span.end, span.last, span.damaged, span.lines)


def records(int fd, segment: Segment, int64_t offset, int64_t position, int64_t end, int64_t most_bytes,
            bint as_lines) -> tuple[int, int, int, bytes]:
    """Records from an offset to before another: about most_bytes of them, at least one, and none after a gap.

    As lines of JSON, or in the format of disk queues. Raises OSError.

    position: as in find_run(). Returns the offsets of the first record and after the last, the position for the
    latter, and the records.
    """
    cdef Segment its = struct_of(segment)
    cdef Span span
    cdef int answer
    with nogil:
        answer = read_run(fd, &its, offset, position, end, INT64_MAX, most_bytes, LINES if as_lines else RECORDS, &span)
    try:
        check(answer)
        return span.first, span.next, span.following, span.text.c_data[:span.text.length] if span.text.length else b""
    finally:
        buffer_free(&span.text)


def origins(int fd, segment: Segment, int64_t offset, int64_t position, int64_t end) -> dict[int, bytes]:
    """The origins of dead letters from an offset to before another, by offset: JSON objects. Raises OSError."""
    cdef Segment its = struct_of(segment)
    cdef const char *c_origin
    cdef dict found = {}
    cdef Walk walk
    cdef int answer
    cdef int64_t at
    with nogil:
        answer = go_to(&walk, fd, &its, offset, position)
    try:
        while answer == 1 and walk.frame.first < end:
            at = max(offset, walk.frame.first)
            c_origin = frame_origin(walk_data(&walk), &walk.frame, at - walk.frame.first)
            while c_origin is not NULL and at < min(end, walk.frame.first + walk.frame.records):
                found[at] = c_origin[RECORD_SIZE:record_length(c_origin)]
                c_origin += record_length(c_origin)
                at += 1
            with nogil:
                answer = walk_next(&walk)
    finally:
        walk_free(&walk)
    check(answer)
    return found


cdef int put_record(Buffer *text, const Frame *frame, const char *c_record, int64_t index) noexcept nogil:
    """In the format of disk queues. 0 or ENOMEM."""
    cdef int64_t size = record_length(c_record) - RECORD_SIZE
    cdef char *c_to
    if buffer_room(text, HEAD_BYTES + size) < 0:
        return ENOMEM
    c_to = text.c_data + text.length
    store_i32(c_to, <int> (HEAD_BYTES - SIZE_BYTES + size))
    store_i64(c_to + RECORD_TIMESTAMP_AT, frame.time_ns)
    store_u16(c_to + RECORD_ATTEMPTS_AT, 0)
    guid_write(guid_after(frame.id, index), c_to + RECORD_ID_AT)
    memcpy(c_to + HEAD_BYTES, c_record + RECORD_SIZE, <size_t> size)
    text.length += HEAD_BYTES + size
    return 0


# ---------------------------------------------------------------------- times

def first_at(int fd, segment: Segment, int64_t time_ns) -> int:
    """The first offset with this publish time or a later one; the end of the segment if none. Raises OSError."""
    cdef Segment its = struct_of(segment)
    cdef Walk walk
    cdef int answer
    with nogil:
        walk_open(&walk, fd, its.salt, index_position(fd, its.salt, -1, time_ns), its.position, its.first,
                  its.end)
        answer = walk_to(&walk, 0, time_ns)
        walk_free(&walk)
    check(answer)
    return walk.frame.first if answer else its.end


def time_of(int fd, segment: Segment, int64_t offset, int64_t position) -> int | None:
    """Publish time of the first record from an offset on, in ns since 1970; None: no record. Raises OSError."""
    cdef Segment its = struct_of(segment)
    cdef Walk walk
    cdef int answer
    with nogil:
        answer = go_to(&walk, fd, &its, offset, position)
        walk_free(&walk)
    check(answer)
    return walk.frame.time_ns if answer else None


# ====================================================================== block
# Checked frames in memory as columns, lines and tuples, for readers outside the daemon: Spark and the tools.
#
# Rows are counted and measured while their frames are checked, so each column is allocated once, at its final size. A
# body is copied once; all other columns are computed from the heads of frames.

MEDIA_TYPE = "application/vnd.nsqc.frames"
FRAME_MORE = FRAME_HEAD + RECORD_SIZE + DELAY_BYTES + HASH_BYTES + RECORD_SIZE + MOST_ORIGIN + FRAME_ALIGN
FRAME_MOST = FRAME_HEAD + FRAME_FULL + FRAME_FULL // RECORD_SIZE * (DELAY_BYTES + HASH_BYTES) + FRAME_ALIGN

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

VALUE, TIMESTAMP, ID, OFFSET, ORIGIN = WANT_VALUE, WANT_TIMESTAMP, WANT_ID, WANT_OFFSET, WANT_ORIGIN


cdef struct FramePart:          # the records of one frame in a block
    int64_t row                 # of the first one
    int64_t time_ns
    int64_t id                  # of the first one
    int64_t at                  # where the first one lies in the data
    int64_t origin_at           # where its origin lies; 0: the frame has no origins


@cython.final
cdef class LogBlock:
    """The records first to end - 1 of the frames in the first `length` bytes of data. Iterating returns (offset, time
    in nanoseconds since 1970, id, body, origin) of each record not returned yet. The origin of a dead letter is a
    JSON object; others have None.

    salt: of the segment. position: of the first byte of data in it. Data must not change while the block is in use.
    Raises ValueError unless the data is sound, consecutive frames with exactly these records. Without a length, data
    is still arriving: more() and complete() check it.
    """

    cdef object owner           # of the memory
    cdef const char *c_data     # valid as long as the owner keeps it
    cdef int64_t size           # of the memory
    cdef uint64_t salt
    cdef int64_t position       # of its first byte in the segment
    cdef int64_t checked        # checked up to here: the end of a frame
    cdef int64_t following      # the offset after that frame
    cdef FramePart *parts       # owned
    cdef int64_t part_count, part_room
    cdef uint32_t *ends         # owned: total bytes of the bodies up to the end of each row
    cdef int64_t rows, room
    cdef int64_t row            # the next one,
    cdef int64_t part           # and its part
    cdef const char *c_record   # and its record
    cdef const char *c_origin   # and its origin; NULL: it has none
    cdef readonly int64_t first, next       # offsets of the first record, and after the last one
    cdef readonly int64_t largest           # bytes of the largest body

    def __dealloc__(self):
        free(self.parts)
        free(self.ends)

    def __init__(self, const unsigned char[::1] data not None, length: int | None, uint64_t salt, int64_t position,
                 int64_t first, int64_t end):
        if self.owner is not None:
            raise ValueError("this block has its records")
        if data.shape[0] > <Py_ssize_t> UINT32_MAX:
            raise ValueError(f"{data.shape[0]} bytes")
        if not 0 <= first <= end <= MOST_OFFSET or position < 0:
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
        """Takes the number of arrived bytes; checks whole frames while caches have them. Raises ValueError."""
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
        """Ends the data. Raises ValueError unless it ends with a frame and has all the records."""
        if self.checked != length:
            raise ValueError(f"no frame of the log at byte {self.checked} of {length}")
        if self.rows != self.next - self.first:
            raise ValueError(f"its frames do not have the records {self.first} to {self.next}")

    cdef int check(self, int64_t length) noexcept nogil:
        """Checks the whole frames in the first bytes and takes their records; NO_ERROR or another BlockError."""
        cdef FrameCheck answer
        cdef Frame frame
        cdef int error
        while self.checked < length:
            answer = frame_check(self.c_data + self.checked, length - self.checked, self.salt,
                                 self.position + self.checked, &frame)
            if answer != FRAME_SOUND:
                return NO_ERROR if answer == FRAME_SHORT else NO_FRAME
            if not is_offset(frame.first) or (self.checked and frame.first != self.following):
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
        """Bytes of the next `count` bodies."""
        cdef int64_t before = self.ends[self.row - 1] if self.row else 0
        return self.ends[self.row + count - 1] - before if count else 0

    cdef int64_t in_part(self, int64_t count) noexcept nogil:
        """How many of the next `count` rows lie in the current part."""
        cdef int64_t end = self.parts[self.part + 1].row if self.part + 1 < self.part_count else self.rows
        return min(count, end - self.row)

    cdef void pass_over(self, int64_t count) noexcept nogil:
        """count: rows of the current part."""
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

    def batch(self, int64_t max_rows, int64_t max_bytes,
              int wanted) -> tuple[int, bytes, bytes, bytes, bytes, bytes, list[str | None] | None] | None:
        """The next records as columns for Arrow: (count, bodies, body offsets, timestamps, ids, offsets, origins); None
        at the end. At least one record; otherwise at most max_rows, and max_bytes of bodies.

        wanted: the sum of VALUE, TIMESTAMP, ID, OFFSET, ORIGIN; other columns are empty. Origins are None if no record
        has one. Body offsets are int32, one more than records; timestamps int64 in microseconds; ids 16 bytes each;
        offsets int64.
        """
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

    def origins(self, int64_t rows) -> list[str | None] | None:
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

    def lines(self, int64_t most, bytes prefix not None, bytes suffix not None) -> tuple[bytes, int]:
        """(text, count): prefix, body and suffix of the next records, up to `most`."""
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

    def __iter__(self) -> LogBlock:
        return self

    def __next__(self) -> tuple[int, int, str, bytes, str | None]:
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

    cdef ReadFrames job         # its data is owned

    def __cinit__(self):
        memset(&self.job, 0, sizeof(self.job))

    def __dealloc__(self):
        read_free(&self.job)


@cython.final
cdef class SegmentBlocks:
    """Reads blocks from the files of segments, into memory that the next read reuses."""

    cdef BlockMemory memory     # of the last read; replaced while a block uses it
    # Where the last read ended, for a sequential next read: first offset of the segment, offset (-1: the read failed),
    # position.
    cdef int64_t first, known, after

    def __cinit__(self):
        self.known = -1

    def read(self, int file, segment: Segment, int64_t offset, int64_t end, int64_t max_bytes) -> LogBlock | None:
        """Records from an offset to before another, at least one, and about max_bytes of frames; None if the record
        is unreadable.

        file: a descriptor of the segment.
        """
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
