"""Records of a data file: store, load, find, count."""

import os

from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.syscalls cimport io_open, io_read, io_size
from nsqc.store.message cimport message_new
from nsqc.wire.const cimport MESSAGE_ID_BYTES, SIZE_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16

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


def count(str path not None, start: int, max_bytes: int):
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


def alive() -> int:
    """Existing read blocks, in all queues."""
    return nsqc_windows_alive
