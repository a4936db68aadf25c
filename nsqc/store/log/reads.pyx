"""Reads verified records of a segment, without the GIL. See the .pxd."""

from libc.errno cimport EAGAIN, ENOENT, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.segment cimport HEAD_BYTES, Window, head_plausible, window_free
from nsqc.store.disk.syscalls cimport io_open, io_read, io_read_cached, io_size
from nsqc.store.log.format cimport (ENTRY_BYTES, INDEX_HEAD_BYTES, IndexEntry, entry_blank, entry_crc, entry_load,
                                    entry_position)
from nsqc.store.log.jobs cimport PATH_BYTES, segment_path
from nsqc.store.log.resume cimport is_torn, resume, window_open
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long long offset, long long length, int advice)
    int POSIX_FADV_WILLNEED

cdef enum:
    NO_OFFSET = -1
    NO_POSITION = -1
    PASSED_BY = -2
    FAILED = -3
    ENTRIES_AT_ONCE = 1024  # of an index, in one read
    AHEAD_BYTES = 4194304   # that the kernel is asked to read ahead behind a read that had to wait

cdef long allocated = 0     # blocks that exist now

cdef extern from *:
    """
    #define NSQC_ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)
    """
    void NSQC_ADD(long counter, long n) nogil


cdef inline int64_t record_bytes(const char *c_record) noexcept nogil:
    return SIZE_BYTES + <int64_t> load_i32(c_record)


cdef void records_free(ReadRecords *job) noexcept nogil:
    NSQC_ADD(allocated, -(job.c_data is not NULL))
    free(job.c_data)
    job.c_data = NULL
    job.length = job.room = 0
    job.begin = job.end = NO_OFFSET


cdef int64_t read_some(ReadRecords *job, int fd, char *c_to, int64_t room, int64_t at) noexcept nogil:
    return io_read_cached(fd, c_to, room, at) if job.cached else io_read(fd, c_to, room, at)


cdef int64_t read_entries(ReadRecords *job, int idx, char *c_to, int64_t offset, int64_t count) noexcept nogil:
    """Entries of an index, from an offset on: how many, or -errno. Those that it lacks are as if damaged; of those that
    are not in the page cache there may be fewer."""
    cdef int64_t got = 0
    if idx >= 0:
        got = read_some(job, idx, c_to, count * ENTRY_BYTES, INDEX_HEAD_BYTES + (offset - job.first) * ENTRY_BYTES)
        if got < 0 or job.cached:
            return got if got < 0 else got // ENTRY_BYTES
    memset(c_to + got, 0xff, <size_t> (count * ENTRY_BYTES - got))
    return count


cdef int records_open(ReadRecords *job) noexcept nogil:
    """errno; 0: the records are open, and the index if it is there."""
    cdef char c_path[PATH_BYTES]
    job.dat = -1
    segment_path(c_path, job.c_folder, job.first, b"idx")
    job.idx = io_open(c_path, O_RDONLY)
    if job.idx < 0 and job.idx != -ENOENT:
        return -job.idx
    segment_path(c_path, job.c_folder, job.first, b"dat")
    job.dat = io_open(c_path, O_RDONLY)
    if job.dat < 0:
        if job.idx >= 0:
            close(job.idx)
        return -job.dat
    return 0


cdef void records_close(ReadRecords *job) noexcept nogil:
    if job.dat >= 0:
        close(job.dat)
        if job.idx >= 0:
            close(job.idx)
    job.dat = job.idx = -1


cdef void run_read_records(Job *c_job) noexcept nogil:
    cdef ReadRecords *job = <ReadRecords *> c_job
    job.begin = job.end = job.offset
    job.damaged = job.length = 0
    job.error = 0
    if not job.keeps_open or job.dat < 0:
        job.error = records_open(job)
    if job.error == 0:
        job.error = read_records(job, job.idx, job.dat)
    job.no_index = job.dat >= 0 and job.idx < 0
    if not job.keeps_open:
        records_close(job)


cdef int read_records(ReadRecords *job, int idx, int dat) noexcept nogil:
    cdef char c_entries[(ENTRIES_AT_ONCE + 1) * ENTRY_BYTES]
    cdef int64_t have, size = job.bytes, begin = NO_OFFSET, known = NO_POSITION
    cdef int error = 0
    if size < 0:
        size = io_size(dat)
        if size < 0:
            return <int> -size
    while error == 0 and job.begin == job.end and job.begin < job.limit:
        # One more than are returned: it says where the last of them ends.
        have = min(job.limit - job.begin, <int64_t> ENTRIES_AT_ONCE + 1)
        have = read_entries(job, idx, c_entries, job.begin, have)
        if have <= 0:
            return <int> -have if have else EAGAIN
        if begin == job.begin and known == job.known_at:
            pass_by(job, 1)     # no way leads on
            continue
        begin, known = job.begin, job.known_at
        error = read_block(job, idx, dat, c_entries, have, size)
        if job.cached and job.damaged:
            return EAGAIN       # a search for intact records may be long: a thread does it
    return error


cdef int64_t position_behind(ReadRecords *job, int idx, int dat, int64_t size) noexcept nogil:
    """Where the record at job.begin lies, by those before it from what is known on: a sound entry, or what was found
    out last. NO_POSITION: unknown. PASSED_BY: it is lost, and job.begin is behind it. FAILED: see job.error."""
    cdef Window window
    cdef int64_t offset = 0, position, length
    cdef int answer = 0
    position = position_before(job, idx, &offset)
    if position < 0:
        return NO_POSITION
    if offset < job.begin:
        window_open(&window)
        while offset < job.begin and answer >= 0:
            answer = resume(&job.torn, idx, dat, job.first, job.limit, size, &window, &offset, &position, &length)
            if answer == 1:
                offset += 1
                position += length
        window_free(&window)
        if answer < 0:
            job.error = -answer     # what cannot be read now is not lost
            return FAILED
    note_position(job, offset, position)
    if offset > job.begin:
        pass_by(job, offset - job.begin)
        return PASSED_BY
    return position


cdef int64_t position_before(ReadRecords *job, int idx, int64_t *offset) noexcept nogil:
    """The last position that is known up to job.begin, and of which offset. NO_POSITION: it cannot be read."""
    cdef char c_entries[ENTRIES_AT_ONCE * ENTRY_BYTES]
    cdef IndexEntry entry
    cdef int64_t at = job.begin, first = job.begin, got
    while at > job.first:
        if at == job.known and job.known_in == job.first:
            offset[0] = at
            return job.known_at
        if at == first:
            first = max(job.first, at - ENTRIES_AT_ONCE)
            got = read_entries(job, idx, c_entries, first, at - first)
            if got < at - first:
                return NO_POSITION
        at -= 1
        if entry_load(c_entries + (at - first) * ENTRY_BYTES, at, &entry):
            offset[0] = at
            return entry.position
    offset[0] = job.first
    return job.known_at if job.known == job.first and job.known_in == job.first else 0


cdef inline void note_position(ReadRecords *job, int64_t offset, int64_t position) noexcept nogil:
    job.known = offset
    job.known_at = position
    job.known_in = job.first


cdef int read_block(ReadRecords *job, int idx, int dat, const char *c_entries, int64_t have,
                    int64_t size) noexcept nogil:
    """Reads the records that follow job.begin, as far as these index entries go. If the first ones are damaged, it
    passes them by; then it may have read nothing."""
    cdef IndexEntry entry, following
    cdef int64_t count = 0, position = 0, end = 0, length, got
    # Entries of zeros at the beginning: their records never count.
    while count < have and entry_blank(c_entries + count * ENTRY_BYTES):
        count += 1
    if count:
        pass_by(job, count)
        return 0
    # Damaged entries at the beginning: only records before them say where theirs are.
    while count < have and not entry_load(c_entries + count * ENTRY_BYTES, job.begin + count, &entry):
        count += 1
    if count and job.cached:
        return EAGAIN           # that search may be long, too
    if count:
        position = position_behind(job, idx, dat, size)
        if position == PASSED_BY:
            return 0
        if position == FAILED:
            return job.error
        if position < 0:
            pass_by(job, count)
            return 0
    if count == 0:
        position = entry.position
    end = position
    # Entries are checked only where something seems wrong: a record that matches its checksum is where it belongs.
    count = count_within(c_entries, min(have - 1, <int64_t> ENTRIES_AT_ONCE), position, job.want)
    if count and entry_load(c_entries + count * ENTRY_BYTES, job.begin + count, &following):
        end = following.position
    else:
        count = 0
    while count < have and count < ENTRIES_AT_ONCE and end - position < job.want:
        count += 1
        if count == have:
            end = size if have == job.limit - job.begin else end
        elif entry_load(c_entries + count * ENTRY_BYTES, job.begin + count, &following):
            end = following.position
        else:
            break
    length = end - position
    if count == have and have < job.limit - job.begin and length <= 0:
        length = job.want       # a block of one record whose end no entry says
    if length <= 0:
        length = job.want
    length = max(min(length, size - position), <int64_t> 0)
    got = fill(job, dat, position, length)
    if got < 0:
        return <int> -got
    got = take_whole(job, idx, dat, c_entries, have, position, got, size)
    return <int> -got if got < 0 else 0


cdef inline void pass_by(ReadRecords *job, int64_t count) noexcept nogil:
    job.damaged += count
    job.begin += count
    job.end = job.begin


cdef int64_t count_within(const char *c_entries, int64_t most, int64_t position, int64_t bytes) noexcept nogil:
    """The number of the last entry, at most this one, that lies at most so many bytes behind a position."""
    cdef int64_t low = 0, high = most, middle
    while low < high:
        middle = (low + high + 1) // 2
        if entry_position(c_entries + middle * ENTRY_BYTES) <= position + bytes:
            low = middle
        else:
            high = middle - 1
    return max(low, <int64_t> 0)


cdef int64_t fill(ReadRecords *job, int dat, int64_t position, int64_t length) noexcept nogil:
    """Reads bytes of the segment into the block; how many, or -errno."""
    cdef char *c_grown
    if length > job.room:
        c_grown = <char *> realloc(job.c_data, <size_t> length)
        if c_grown is NULL:
            return -ENOMEM
        NSQC_ADD(allocated, job.c_data is NULL)
        job.c_data = c_grown
        job.room = length
    return read_some(job, dat, job.c_data, length, position)


cdef int64_t take_whole(ReadRecords *job, int idx, int dat, const char *c_entries, int64_t have, int64_t position,
                        int64_t got, int64_t size) noexcept nogil:
    """Checks records from the beginning of the block on; its length, or -errno. 0: the first one is damaged, and passed
    by."""
    cdef IndexEntry entry, following
    cdef int64_t at = 0, total, index = 0, end
    cdef bint valid, intact
    cdef const char *c_entry
    while index < have and index < ENTRIES_AT_ONCE:
        c_entry = c_entries + index * ENTRY_BYTES
        if entry_position(c_entry) == position + at and got - at >= HEAD_BYTES:
            total = record_bytes(job.c_data + at)
            if (HEAD_BYTES <= total <= got - at
                    and crc32c(<const unsigned char *> job.c_data + at, total) == entry_crc(c_entry)):
                at += total
                index += 1
                continue
        if at >= got:
            break
        valid = entry_load(c_entries + index * ENTRY_BYTES, job.begin + index, &entry)
        if valid and entry.position != position + at:
            break       # the records before this one were damaged in size
        end = job.torn.at if not valid and is_torn(&job.torn, job.begin + index) else size
        if got - at < HEAD_BYTES:
            if index == 0 and size - position >= HEAD_BYTES and got < HEAD_BYTES:
                got = fill(job, dat, position, min(size - position, max(job.want, <int64_t> HEAD_BYTES)))
                if got < 0:
                    return got
                if got >= HEAD_BYTES:
                    continue
            break
        total = record_bytes(job.c_data + at)
        intact = HEAD_BYTES <= total <= end - position - at
        if intact and total > got - at:
            if index > 0:
                break
            # One record larger than was read.
            got = fill(job, dat, position, total)
            if got < 0:
                return got
            intact = got >= total
        if intact:
            intact = crc32c(<const unsigned char *> job.c_data + at, total) == entry_crc(c_entry)
            if not intact and not valid and not entry_blank(c_entry) and head_plausible(job.c_data + at, total):
                # Its entry is damaged: the record counts if it looks like one and what follows agrees on where it ends,
                # the next entry or the head of the next record. An entry of zeros was never written, and vouches for
                # nothing.
                if (index + 1 < have
                        and entry_load(c_entry + ENTRY_BYTES, job.begin + index + 1, &following)):
                    intact = following.position == position + at + total
                elif position + at + total == end:
                    intact = True
                elif got - at >= total + HEAD_BYTES:
                    intact = head_plausible(job.c_data + at + total, size - position - at - total)
                elif index == 0 and size - position >= total + HEAD_BYTES:
                    got = fill(job, dat, position, total + HEAD_BYTES)
                    if got < 0:
                        return got
                    intact = (got >= total + HEAD_BYTES
                              and head_plausible(job.c_data + total, size - position - total))
        if not intact:
            break
        at += total
        index += 1
        if at >= got:
            break
    if index == 0:
        valid = have == 0 or entry_blank(c_entries) or entry_load(c_entries, job.begin, &entry)
        if not valid and have > 1 and got >= HEAD_BYTES and head_plausible(job.c_data, size - position):
            # The next entry says where this one ends, so it is this one that is damaged.
            valid = entry_load(c_entries + ENTRY_BYTES, job.begin + 1, &following)
        if not valid:
            return take_without_entry(job, idx, dat, position, size)
        pass_by(job, 1)
        return 0
    job.end = job.begin + index
    note_position(job, job.end, position + at)
    job.length = at
    if not job.cached:
        posix_fadvise(dat, position + at, AHEAD_BYTES, POSIX_FADV_WILLNEED)
    return at


cdef int64_t take_without_entry(ReadRecords *job, int idx, int dat, int64_t position, int64_t size) noexcept nogil:
    """The length of the record here, by the rules for damaged files, or -errno. 0: it is damaged, and passed by."""
    cdef Window window
    cdef int64_t offset = job.begin, length = 0, got
    cdef int answer
    window_open(&window)
    answer = resume(&job.torn, idx, dat, job.first, job.limit, size, &window, &offset, &position, &length)
    window_free(&window)
    if answer < 0:
        return answer
    if answer == 0:
        note_position(job, offset, position)
        pass_by(job, offset - job.begin)
        return 0
    got = fill(job, dat, position, length)
    if got < length:
        pass_by(job, 1)
        return min(got, <int64_t> 0)
    job.end = job.begin + 1
    note_position(job, job.end, position + length)
    job.length = length
    return length


def alive() -> int:
    """Blocks of records that exist now."""
    return allocated
