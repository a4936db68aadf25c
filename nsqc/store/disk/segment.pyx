"""One data file of a disk queue: records, the write buffer, the jobs that read and write it. See the .pxd."""

import os
from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR
from posix.unistd cimport close, unlink

from nsqc.store.disk.fileio cimport PATH_BYTES, io_open, io_read, io_size, io_truncate, io_write, path_store
from nsqc.store.message cimport message_new, unacked_done
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16


# ====================================================================== segment

# Size of a record, for Python.
RECORD_SIZE_BYTES = SIZE_BYTES
RECORD_HEAD_BYTES = HEAD_BYTES
RECORD_ID_OFFSET = RECORD_ID_AT

cdef enum:
    PAGE_BYTES = 4096           # granularity of disk read errors
    READ_TRIES = 3              # of a page, before it counts as lost
    SEVERAL = 3                 # consecutive records; chance produces one or two
    FIRST_BLOCK_BYTES = 16384   # of a file's first read; each further read is four times as large

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef int64_t LAST_TIMESTAMP = <int64_t> 0x30 << 56  # in the year 2079; digits as text would be later ones

cdef extern from *:
    """
    /* Atomic: threads read, too. */
    static long nsqc_windows_alive = 0;
    #define NSQC_COUNT_WINDOW(n) __atomic_fetch_add(&nsqc_windows_alive, (n), __ATOMIC_RELAXED)
    """
    long nsqc_windows_alive
    void NSQC_COUNT_WINDOW(long) nogil


# ---------------------------------------------------------------------- one record

cdef inline bint eight_hex_digits(const char *c_text) noexcept nogil:
    """Compares all eight bytes at once: an addition sets a byte's high bit where it reaches a bound."""
    cdef uint64_t text, digit, letter
    memcpy(&text, c_text, 8)
    if text & HIGH_BITS:
        return False
    digit = (text + <uint64_t> 0x5050505050505050) & ~(text + <uint64_t> 0x4646464646464646)
    letter = (text + <uint64_t> 0x1f1f1f1f1f1f1f1f) & ~(text + <uint64_t> 0x1919191919191919)
    return ((digit | letter) & HIGH_BITS) == HIGH_BITS


cdef inline bint id_usable(const char *c_id) noexcept nogil:
    """Whether it can be sent in a command line: a message that cannot be finished must not be delivered."""
    cdef int at
    for at in range(MESSAGE_ID_BYTES):
        if not c'!' <= c_id[at] <= c'~':
            return False
    return True


cdef inline int64_t record_bytes(const char *c_head) noexcept nogil:
    """By its size field: 64 bits, since the field may hold any 32 bits."""
    return SIZE_BYTES + <int64_t> load_i32(c_head)


cdef bint head_plausible(const char *c_head, int64_t max_bytes) noexcept nogil:
    cdef int64_t length = record_bytes(c_head)
    cdef int64_t timestamp
    if length < HEAD_BYTES or length > max_bytes:
        return False
    timestamp = load_i64(c_head + RECORD_TIMESTAMP_AT)
    return (0 < timestamp < LAST_TIMESTAMP
            and eight_hex_digits(c_head + RECORD_ID_AT) and eight_hex_digits(c_head + RECORD_ID_AT + 8))


cdef void record_store(char *c_to, Message *message, uint16_t attempts) noexcept nogil:
    store_i32(c_to, <int32_t> (message.size + (HEAD_BYTES - SIZE_BYTES)))
    store_i64(c_to + RECORD_TIMESTAMP_AT, message.timestamp_ns)
    store_u16(c_to + RECORD_ATTEMPTS_AT, attempts)
    memcpy(c_to + RECORD_ID_AT, message.id, MESSAGE_ID_BYTES)
    memcpy(c_to + HEAD_BYTES, message.body, message.size)


cdef Message *record_load(const char *c_record, uint16_t *attempts) noexcept nogil:
    attempts[0] = load_u16(c_record + RECORD_ATTEMPTS_AT)
    return message_new(c_record + RECORD_ID_AT, load_i64(c_record + RECORD_TIMESTAMP_AT), c_record + HEAD_BYTES,
                       <uint32_t> (load_i32(c_record) - (HEAD_BYTES - SIZE_BYTES)))


# ---------------------------------------------------------------------- the window

cdef int window_fill(Window *window, int fd, int64_t at, int64_t need) noexcept nogil:
    """Makes need bytes from offset at available, or all up to the limit; drops earlier ones."""
    cdef int64_t want, kept = 0, shift = at - window.start
    cdef int error
    need = min(need, window.limit - at)
    if 0 <= shift and shift + need <= window.length:
        return 0
    if 0 <= shift < window.length:
        kept = window.length - shift
    want = min(max(need, window.step, <int64_t> FIRST_BLOCK_BYTES), window.limit - at)
    error = make_room(window, want, shift, kept)
    if error:
        return error
    window.start = at
    window.length = kept
    window.step = min(max(4 * window.step, <int64_t> FIRST_BLOCK_BYTES), <int64_t> BLOCK_BYTES)
    return read_on(window, fd, want)


cdef int make_room(Window *window, int64_t want, int64_t shift, int64_t kept) noexcept nogil:
    """Moves the bytes to keep to the front of a buffer of at least want bytes."""
    cdef char *c_data
    cdef int64_t room
    if window.room >= want:
        if kept:
            memmove(window.c_data, window.c_data + shift, <size_t> kept)
        return 0
    room = (want + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES
    c_data = <char *> malloc(<size_t> room)
    if c_data is NULL:
        return ENOMEM
    if kept:
        memcpy(c_data, window.c_data + shift, <size_t> kept)
    NSQC_COUNT_WINDOW(window.c_data is NULL)
    free(window.c_data)
    window.c_data = c_data
    window.room = room
    return 0


cdef int read_on(Window *window, int fd, int64_t want) noexcept nogil:
    cdef int64_t got
    got = io_read(fd, window.c_data + window.length, want - window.length, window.start + window.length)
    if got == -EIO:
        return read_by_pages(window, fd, want)
    if got < 0:
        return <int> -got
    window.length += got
    if window.length < want:
        # The file has been truncated; the rest is lost.
        window.limit = window.start + window.length
    return 0


cdef int read_by_pages(Window *window, int fd, int64_t want) noexcept nogil:
    """Zeroes pages that the disk cannot read: no record starts with zeros, so the search continues after them."""
    cdef int64_t got, at, room
    cdef int left
    while window.length < want:
        at = window.start + window.length
        room = min(want - window.length, PAGE_BYTES - at % PAGE_BYTES)
        got = -EIO
        left = READ_TRIES
        while got == -EIO and left > 0:
            got = io_read(fd, window.c_data + window.length, room, at)
            left -= 1
        if got == -EIO:
            memset(window.c_data + window.length, 0, <size_t> room)
            window.unreadable += room
            got = room
        if got < 0:
            return <int> -got
        window.length += got
        if got < room:
            window.limit = at + got
            break
    return 0


cdef void window_adopt(Window *window, char *c_data, int64_t room) noexcept nogil:
    window_free(window)
    NSQC_COUNT_WINDOW(1)
    window.c_data = c_data
    window.room = room


cdef void window_free(Window *window) noexcept nogil:
    NSQC_COUNT_WINDOW(-(window.c_data is not NULL))
    free(window.c_data)
    window.c_data = NULL
    window.room = window.length = window.step = 0


# ---------------------------------------------------------------------- finding records

cdef inline const char *bytes_at(Window *window, int64_t at) noexcept nogil:
    return window.c_data + (at - window.start)


cdef int is_followed(Window *window, int fd, int64_t max_bytes, int64_t end) noexcept nogil:
    """Whether another record or the end of data follows a record that ends here; -errno if it cannot be read."""
    cdef int error
    if end == window.limit:
        return 1
    if window.limit - end < HEAD_BYTES:
        return 0
    error = window_fill(window, fd, end, HEAD_BYTES)
    if error:
        return -error
    if window.limit - end < HEAD_BYTES:
        return end == window.limit
    return head_plausible(bytes_at(window, end), min(max_bytes, window.limit - end))


cdef int is_chained(Window *window, int fd, int64_t max_bytes, int64_t end) noexcept nogil:
    """Like is_followed(), for the next record too: a head made of pieces rarely leads to a further one."""
    cdef char[HEAD_BYTES] c_further
    cdef int64_t after
    cdef int answer = is_followed(window, fd, max_bytes, end)
    if answer != 1 or end == window.limit:
        return answer
    after = end + record_bytes(bytes_at(window, end))
    if window.limit - after < HEAD_BYTES:
        return after == window.limit
    if after + HEAD_BYTES <= window.start + window.length:
        return head_plausible(bytes_at(window, after), max_bytes)
    # Not through the window, which would drop the data here.
    return io_read(fd, c_further, HEAD_BYTES, after) == HEAD_BYTES and head_plausible(c_further, max_bytes)


cdef int search(Window *window, int fd, int64_t max_bytes, int64_t at, int64_t end, bint followed,
                int64_t *begin) noexcept nogil:
    """The first plausible record from at up to end that fits into the file; followed: and is followed by another."""
    cdef int error, fits
    cdef int64_t after
    cdef const char *c_at
    while at < end and window.limit - at >= HEAD_BYTES:
        error = window_fill(window, fd, at, HEAD_BYTES)
        if error:
            return -error
        if window.limit - at < HEAD_BYTES:
            return 0
        c_at = bytes_at(window, at)
        # A message is far smaller than 2^24 bytes, so one byte rules out most positions.
        if c_at[0] == 0 and head_plausible(c_at, max_bytes):
            after = at + record_bytes(c_at)
            fits = after <= window.limit
            if fits and followed:
                fits = is_followed(window, fd, max_bytes, after)
                if fits < 0:
                    return fits
            if fits:
                begin[0] = at
                return 1
        at += 1
    return 0


cdef int is_several(Window *window, int fd, int64_t max_bytes, int64_t at, int64_t end, int64_t *first) noexcept nogil:
    """Whether an apparent record that ends here is really several: between at and its end, some consecutive plausible
    ones, or fewer that lead to exactly its end. first: where the first of all starts."""
    cdef int64_t begin = 0
    cdef bint is_first = True
    cdef int error, answer, count
    while True:
        answer = search(window, fd, max_bytes, at, end, True, &begin)
        if answer != 1:
            return answer
        if is_first:
            first[0] = begin
            is_first = False
        at = begin
        count = 0
        while at < end and count < SEVERAL:
            error = window_fill(window, fd, at, HEAD_BYTES)
            if error:
                return -error
            if window.limit - at < HEAD_BYTES or not head_plausible(bytes_at(window, at), max_bytes):
                break
            at += record_bytes(bytes_at(window, at))
            count += 1
        if at == end or (at < end and count == SEVERAL):
            return 1
        at = begin + 1


cdef int begins_inside(Window *window, int fd, int64_t max_bytes, int64_t at, int64_t end,
                       int64_t *inside) noexcept nogil:
    """The first record between the two that is followed by a plausible one, and is not several."""
    cdef int64_t first, total
    cdef int error, answer
    while True:
        answer = search(window, fd, max_bytes, at, end, True, inside)
        if answer != 1:
            return answer
        error = window_fill(window, fd, inside[0], HEAD_BYTES)
        if error:
            return -error
        total = record_bytes(bytes_at(window, inside[0]))
        answer = is_several(window, fd, max_bytes, inside[0] + 1, inside[0] + total, &first)
        if answer != 1:
            return 1 if answer == 0 else answer
        at = inside[0] + 1


cdef int segment_next(Window *window, int fd, int64_t max_bytes, int64_t at,
                      int64_t *begin, int64_t *length) noexcept nogil:
    cdef int64_t total, inside
    cdef int error, answer
    cdef bint searched = False      # no previous record points here
    cdef const char *c_at
    while window.limit - at >= HEAD_BYTES:
        error = window_fill(window, fd, at, HEAD_BYTES)
        if error:
            return -error
        if window.limit - at < HEAD_BYTES:
            return 0
        c_at = bytes_at(window, at)
        total = record_bytes(c_at)
        if total < HEAD_BYTES or total > max_bytes or total > window.limit - at or not id_usable(c_at + RECORD_ID_AT):
            answer = search(window, fd, max_bytes, at + 1, window.limit, False, &at)
            if answer <= 0:
                return answer
            searched = True
            continue
        error = window_fill(window, fd, at, total + HEAD_BYTES)
        if error:
            return -error
        if total > window.limit - at:
            continue
        answer = is_chained(window, fd, max_bytes, at + total)
        if answer == 0:
            answer = begins_inside(window, fd, max_bytes, at + 1, at + total, &inside)
        elif answer == 1 and searched:
            answer = is_several(window, fd, max_bytes, at + 1, at + total, &inside)
        elif answer == 1:
            answer = 0
        if answer == 1:
            at = inside
            searched = True
            continue
        if answer < 0:
            return answer
        begin[0] = at
        length[0] = total
        error = window_fill(window, fd, at, total)
        return -error if error else 1
    return 0


cdef void block_read(Block *block, const char *c_path, int64_t at, int64_t limit, int64_t max_bytes,
                     int64_t want) noexcept nogil:
    cdef int64_t length = 0, total, end, after
    cdef int error, fd = io_open(c_path, O_RDONLY)
    cdef const char *c_at
    memset(block, 0, sizeof(block[0]))
    block.begin = block.end = at
    if fd < 0:
        block.answer = fd
        return
    block.window.step = want
    block.window.limit = limit if limit >= 0 else io_size(fd)
    if block.window.limit < 0:
        block.answer = <int> block.window.limit
        block.window.limit = 0
    else:
        block.answer = segment_next(&block.window, fd, max_bytes, at, &block.begin, &length)
    if block.answer == 1:
        block.end = block.begin + length
        error = window_fill(&block.window, fd, block.begin, max(length, want))
        if error:
            block.answer = -error
    close(fd)
    # Later records belong to the block as long as each is whole here and followed by two plausible heads.
    end = block.window.start + block.window.length
    while block.answer == 1 and end - block.end >= HEAD_BYTES:
        c_at = bytes_at(&block.window, block.end)
        total = record_bytes(c_at)
        if (total < HEAD_BYTES or total > max_bytes or not id_usable(c_at + RECORD_ID_AT)
                or block.end + total > end):
            break
        if block.end + total != block.window.limit:
            if end - block.end - total < HEAD_BYTES or not head_plausible(c_at + total, max_bytes):
                break
            after = block.end + total + record_bytes(c_at + total)
            if after != block.window.limit:
                if end - after < HEAD_BYTES or not head_plausible(bytes_at(&block.window, after), max_bytes):
                    break
        block.end += total


cdef Tally tally(const char *c_path, int64_t start, int64_t limit, int64_t max_bytes) noexcept nogil:
    cdef Tally result
    cdef Window window
    cdef int64_t begin, length
    cdef int answer = 1
    cdef int fd = io_open(c_path, O_RDONLY)
    memset(&result, 0, sizeof(result))
    memset(&window, 0, sizeof(window))
    if fd < 0:
        result.error = -fd
        return result
    result.size = io_size(fd)
    if limit >= 0:
        result.size = min(limit, result.size)
    window.limit = result.size
    result.end = start
    while answer == 1:
        answer = segment_next(&window, fd, max_bytes, result.end, &begin, &length)
        if answer == 1:
            result.records += 1
            result.damaged += begin - result.end
            result.end = begin + length
    if answer < 0:
        result.error = -answer
    window_free(&window)
    close(fd)
    return result


def count(str path not None, start: int, max_bytes: int) -> tuple[int, int, int, int]:
    """Counts the records of a data file from an offset on. Raises OSError.

    Returns (records, offset after the last of them, damaged bytes before that, file size). max_bytes: of the
    largest record, size field included.
    """
    cdef bytes name = os.fsencode(path)
    cdef const char *c_path = name
    cdef int64_t from_ = start, largest = max_bytes
    cdef Tally result
    with nogil:
        result = tally(c_path, from_, -1, largest)
    if result.error:
        raise OSError(result.error, os.strerror(result.error), path)
    return result.records, result.end, result.damaged, result.size


def read_blocks_alive() -> int:
    """Existing read blocks, in all queues."""
    return nsqc_windows_alive


# ====================================================================== write buffer

cdef enum:
    FIRST_ROOM = 4096
    FIRST_FORMERS = 64
    KEPT_OUT_BYTES = 65536      # of an emptied buffer
    MOST_SPARE = 1048576        # bytes of a written buffer kept for the next one
    ALL_SPARE = 67108864        # of all queues

cdef int64_t buffers = 0        # that own memory, in all queues
cdef int64_t all_spare = 0      # bytes, likewise


# ---------------------------------------------------------------------- memory

cdef int out_room(WriteBuf *out, int64_t need) noexcept nogil:
    """Makes room for need more bytes; -1: no memory."""
    global buffers
    cdef int64_t room = out.length + need
    cdef char *c_grown
    if room <= out.room:
        return 0
    room = max(room, 2 * out.room, <int64_t> FIRST_ROOM)
    c_grown = <char *> realloc(out.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    buffers += out.c_data is NULL
    out.c_data = c_grown
    out.room = room
    return 0


cdef int former_room(WriteBuf *out) noexcept nogil:
    """Makes room for one more place; -1: no memory."""
    cdef int64_t room = out.former_end + 1
    cdef Former *c_grown
    if room <= out.former_room:
        return 0
    room = max(room, 2 * out.former_room, <int64_t> FIRST_FORMERS)
    c_grown = <Former *> realloc(out.formers, <size_t> room * sizeof(Former))
    if c_grown is NULL:
        return -1
    out.formers = c_grown
    out.former_room = room
    return 0


cdef void out_clear(WriteBuf *out) noexcept nogil:
    out.length = out.taken = out.records = 0
    out.former_first = out.former_end = 0
    if out.room > KEPT_OUT_BYTES:
        data_free(out.c_data)
        out.c_data = NULL
        out.room = 0
    if out.former_room * <int64_t> sizeof(Former) > KEPT_OUT_BYTES:
        free(out.formers)
        out.formers = NULL
        out.former_room = 0


cdef void out_free(WriteBuf *out) noexcept nogil:
    data_free(out.c_data)
    free(out.formers)
    memset(out, 0, sizeof(out[0]))


cdef void data_free(char *c_data) noexcept nogil:
    global buffers
    buffers -= c_data is not NULL
    free(c_data)


cdef void data_moved() noexcept nogil:
    global buffers
    buffers -= 1


cdef void spare_keep(Spare *spare, WriteBuf *out) noexcept nogil:
    global all_spare
    if spare.c_data is NULL and 0 < out.room <= MOST_SPARE and all_spare + out.room <= ALL_SPARE:
        spare.c_data = out.c_data
        spare.room = out.room
        all_spare += out.room
        out.c_data = NULL
        out.room = 0


cdef void spare_use(Spare *spare, WriteBuf *out) noexcept nogil:
    global all_spare
    out.c_data = spare.c_data
    out.room = spare.room
    all_spare -= spare.room
    spare.c_data = NULL
    spare.room = 0


cdef void spare_free(Spare *spare) noexcept nogil:
    global all_spare
    all_spare -= spare.room
    data_free(spare.c_data)
    spare.c_data = NULL
    spare.room = 0


# ---------------------------------------------------------------------- records

cdef int out_append(WriteBuf *out, Message *message, uint16_t attempts, Place *former) noexcept nogil:
    if out_room(out, <int64_t> HEAD_BYTES + message.size) < 0:
        return -1
    if former is not NULL:
        if former_room(out) < 0:
            return -1
        out.formers[out.former_end].offset = out.length
        out.formers[out.former_end].place = former
        out.former_end += 1
    record_store(out.c_data + out.length, message, attempts)
    out.length += <int64_t> HEAD_BYTES + message.size
    out.records += 1
    return 0


cdef Message *out_pop(WriteBuf *out, uint16_t *attempts, Place **place) noexcept nogil:
    cdef Message *message = record_load(out.c_data + out.taken, attempts)
    place[0] = NULL
    if message is NULL:
        return NULL
    if out.former_first < out.former_end and out.formers[out.former_first].offset == out.taken:
        place[0] = out.formers[out.former_first].place
        out.former_first += 1
    out.taken += HEAD_BYTES + message.size
    out.records -= 1
    if out.records == 0:
        out_clear(out)
    return message


cdef int64_t out_body_bytes(WriteBuf *out) noexcept nogil:
    return out.length - out.taken - HEAD_BYTES * out.records


cdef int64_t count_records(WriteBuf *out, int64_t upto) noexcept nogil:
    cdef int64_t offset = out.taken, count = 0
    while offset < upto:
        offset += SIZE_BYTES + <int64_t> load_i32(out.c_data + offset)
        count += 1
    return count


cdef void end_formers(WriteBuf *out, Unacked *unacked, int64_t upto) noexcept nogil:
    while out.former_first < out.former_end and out.formers[out.former_first].offset < upto:
        unacked_done(unacked, out.formers[out.former_first].place)
        out.former_first += 1


cdef void forget_formers(WriteBuf *out, Unacked *unacked) noexcept nogil:
    end_formers(out, unacked, INT64_MAX)


def write_buffers_alive() -> int:
    """Write buffers that own memory, in all queues."""
    return buffers


# ====================================================================== file jobs
# Writes and reads queue files, on threads that do not hold the GIL.

cdef int64_t whole_records(const char *c_from, int64_t length) noexcept nogil:
    """Bytes of the complete records within the first length bytes."""
    cdef int64_t offset = 0, size
    while offset + SIZE_BYTES <= length:
        size = SIZE_BYTES + <int64_t> load_i32(c_from + offset)
        if offset + size > length:
            break
        offset += size
    return offset


cdef int write_span(WriteJob *job, int64_t number, int64_t at, const char *c_from, int64_t length,
                    int64_t *kept) noexcept nogil:
    """Writes records to one file; 0 or errno. kept: bytes that stay in the file."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t written = 0
    cdef int error, fd
    path_store(c_path, job.c_prefix, number)
    kept[0] = 0
    fd = io_open(c_path, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    error = io_write(fd, c_from, length, at, &written)
    if error:
        if job.partial:
            kept[0] = whole_records(c_from, written)
        io_truncate(fd, at + kept[0])
    else:
        kept[0] = length
    close(fd)
    return error


cdef void run_write(Job *c_job) noexcept nogil:
    cdef WriteJob *job = <WriteJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef int64_t number = job.number, at = job.at, offset = job.out.taken, begin, size, kept
    cdef int fd
    job.first_end = -1
    job.end_number = number
    job.end_at = at
    job.kept = offset
    while offset < job.out.length:
        begin = offset
        while offset < job.out.length:
            size = SIZE_BYTES + <int64_t> load_i32(job.out.c_data + offset)
            if at + offset - begin > 0 and at + offset - begin + size > job.max_file:
                break
            offset += size
        if offset > begin:
            job.error = write_span(job, number, at, job.out.c_data + begin, offset - begin, &kept)
            job.kept += kept
            at += kept
            if job.error:
                break
        if offset < job.out.length:
            job.first_end = at if job.first_end < 0 else job.first_end
            number += 1
            at = 0
    if job.error and not job.partial:
        # Nothing of it stays in the files; the loop relies on that.
        while number > job.number:
            path_store(c_path, job.c_prefix, number)
            unlink(c_path)
            number -= 1
            if number == job.number:
                path_store(c_path, job.c_prefix, number)
                fd = io_open(c_path, O_RDWR)
                if fd >= 0:
                    io_truncate(fd, job.at)
                    close(fd)
        job.kept = job.out.taken
        at = job.at
    if job.error and at == 0 and number > job.number:
        # Nothing was written to the last file: no file.
        path_store(c_path, job.c_prefix, number)
        unlink(c_path)
        number -= 1
        at = job.first_end if number == job.number else job.max_file
    job.end_number = number
    job.end_at = at


cdef void run_read(Job *c_job) noexcept nogil:
    cdef ReadJob *job = <ReadJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef Tally rest
    cdef int64_t number
    path_store(c_path, job.c_prefix, job.number)
    block_read(&job.block, c_path, job.at, job.limit, job.max_record, job.want)
    if not job.counts or (job.block.answer == 1 and job.block.begin == job.at):
        return
    if job.block.answer < 0 and job.block.answer != -ENOENT:
        return
    if job.block.answer >= 0:
        rest = tally(c_path, job.at, job.limit, job.max_record)
        job.here = rest.records
        job.lost = rest.damaged + rest.size - rest.end
    for number in range(job.number + 1, job.last_number + 1):
        path_store(c_path, job.c_prefix, number)
        rest = tally(c_path, 0, job.last_at if number == job.last_number else -1, job.max_record)
        job.later += rest.records
        if rest.error != ENOENT and job.following == 0:
            job.following = number
        if number - job.number > FEW_FILES and rest.error == ENOENT:
            break
