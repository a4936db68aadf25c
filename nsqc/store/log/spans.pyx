"""Ranges of a segment for readers: which records are intact. For Python: see the .pyi.

What takes time runs without the GIL.
"""

import os
from collections import namedtuple

from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_TIMESTAMP_AT, head_plausible, window_fill, window_free
from nsqc.store.log.format cimport (ENTRY_BYTES, INDEX_HEAD_BYTES, MOST_SEGMENT, TIME_SHIFT, IndexEntry, IndexHead,
                                    entry_blank, entry_crc, entry_load, entry_position, head_load)
from nsqc.store.log.jsonlines cimport line_bytes
from nsqc.store.log.resume cimport is_torn, resume, window_open
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64

Sound = namedtuple("Sound", "first next start end damaged lines")

cdef enum:
    BACK_BYTES = 65536          # of an index, that are read at once by who looks back; whole entries


# ---------------------------------------------------------------------- intact records

def sound(int data, int index, segment, int64_t offset, int64_t max_messages, int64_t max_bytes, bint as_lines):
    """See the .pyi."""
    cdef Range range_
    cdef Run run
    cdef int64_t at = 0, from_ = offset
    cdef int error
    open_range(&range_, data, index, segment)
    with nogil:
        error = find_position(&range_, &offset, &at)
        if error == 0:
            error = find_run(&range_, offset, at, max_messages, max_bytes, as_lines, &run)
        close_range(&range_)
    if error:
        raise OSError(error, os.strerror(error))
    run.damaged += offset - from_
    return Sound(run.first, run.next, run.start, run.end, run.damaged, run.lines)


def not_before(int data, int index, segment, int64_t offset, int64_t time_ns):
    """See the .pyi."""
    cdef Range range_
    cdef int64_t at = 0
    cdef int error
    open_range(&range_, data, index, segment)
    with nogil:
        error = find_position(&range_, &offset, &at)
        if error == 0:
            error = skip_earlier(&range_, &offset, at, time_ns)
        close_range(&range_)
    if error:
        raise OSError(error, os.strerror(error))
    return offset


cdef int skip_earlier(Range *range_, int64_t *offset, int64_t at, int64_t time_ns) noexcept nogil:
    """0 or errno. Times in the index do not fall, even if the clock has: with a sound head, they bound the search."""
    cdef IndexEntry entry
    cdef bint valid = False, bounded
    cdef IndexHead head
    cdef int64_t length, lost = 0
    cdef int error = window_fill(&range_.index, range_.index_fd, 0, INDEX_HEAD_BYTES)
    bounded = error == 0 and range_.index.length >= INDEX_HEAD_BYTES and head_load(range_.index.c_data, &head)
    while error == 0 and offset[0] < range_.next:
        if bounded:
            error = entry_of(range_, offset[0], &entry, &valid)
        if error == 0 and valid and head.base_ns + ((<int64_t> entry.time) << TIME_SHIFT) >= time_ns:
            break
        if error == 0:
            error = check_record(range_, offset[0], at, &length)
        if error:
            break
        if length == 0:
            error = skip_damage(range_, offset, &at, &lost, &length)
        if length == 0 or error:
            continue
        if load_i64(range_.data.c_data + (at - range_.data.start) + RECORD_TIMESTAMP_AT) >= time_ns:
            break
        at += length
        offset[0] += 1
    return error


def next_time(int index, segment, int64_t offset, int64_t end):
    """See the .pyi."""
    cdef Range range_
    cdef IndexEntry entry
    cdef bint valid = False
    cdef int error = 0
    open_range(&range_, -1, index, segment)
    with nogil:
        while error == 0 and offset < end:
            error = entry_of(&range_, offset, &entry, &valid)
            if valid:
                break
            offset += 1
        close_range(&range_)
    if error:
        raise OSError(error, os.strerror(error))
    return (offset, entry.time) if valid else None


def timestamp(int data, int index, segment, int64_t offset):
    """See the .pyi."""
    cdef Range range_
    cdef Run run
    cdef int64_t at = 0, stamp = -1
    cdef int error
    open_range(&range_, data, index, segment)
    with nogil:
        error = find_position(&range_, &offset, &at)
        if error == 0:
            error = find_run(&range_, offset, at, 1, 0, False, &run)
        if error == 0 and run.first < run.next:
            # The look at the next record has dropped this one, if they are large.
            error = window_fill(&range_.data, range_.data_fd, run.start, HEAD_BYTES)
        if error == 0 and run.first < run.next and range_.data.limit - run.start >= HEAD_BYTES:
            stamp = load_i64(range_.data.c_data + (run.start - range_.data.start) + RECORD_TIMESTAMP_AT)
        close_range(&range_)
    if error:
        raise OSError(error, os.strerror(error))
    return None if stamp < 0 else stamp


cdef int open_range(Range *range_, int data, int index, segment) except -1:
    memset(range_, 0, sizeof(Range))
    range_.data_fd, range_.index_fd = data, index
    range_.segment, range_.next, range_.data.limit = segment
    range_.index.limit = INDEX_HEAD_BYTES + ENTRY_BYTES * (range_.next - range_.segment)
    return 0


cdef void close_range(Range *range_) noexcept nogil:
    window_free(&range_.data)
    window_free(&range_.index)
    window_free(&range_.search)


cdef int find_position(Range *range_, int64_t *offset, int64_t *at) noexcept nogil:
    """Where a record begins, by its index entry, or else by the records before it; 0 or errno. If it is lost: the next
    one, and its offset."""
    cdef IndexEntry entry
    cdef bint valid = False
    cdef int64_t known = offset[0] + 1, length
    cdef int error = 0
    at[0] = 0
    while error == 0 and not valid and known > range_.segment:
        known -= 1
        if known < offset[0]:
            error = fill_before(range_, known)
        if error == 0:
            error = entry_of(range_, known, &entry, &valid)
    if valid:
        at[0] = entry.position
    while error == 0 and known < offset[0]:
        error = check_record(range_, known, at[0], &length)
        if error == 0 and length == 0:
            error = resume_at(range_, &known, at, &length)
        if length:
            at[0] += length
            known += 1
    offset[0] = max(offset[0], known)
    return error


cdef int resume_at(Range *range_, int64_t *offset, int64_t *at, int64_t *length) noexcept nogil:
    """The bytes of the record here, by the rules for damaged files; 0: offset and at are those of the next one. 0 or
    errno."""
    cdef int answer
    if range_.search.step == 0:
        window_open(&range_.search)
    length[0] = 0
    answer = resume(&range_.torn, range_.index_fd, range_.data_fd, range_.segment, range_.next, range_.data.limit,
                    &range_.search, offset, at, length)
    if answer == 0:
        length[0] = 0
    return -answer if answer < 0 else 0


cdef int find_run(Range *range_, int64_t offset, int64_t at, int64_t max_messages, int64_t max_bytes, bint as_lines,
                  Run *run) noexcept nogil:
    """0 or errno."""
    cdef int64_t length = 0
    cdef bint found = False
    cdef int error
    memset(run, 0, sizeof(Run))
    while offset < range_.next:
        length = matching(range_, offset, at)
        if length == 0:
            error = check_record(range_, offset, at, &length)
            if error:
                return error
        if length == 0:
            if found:
                break
            error = skip_damage(range_, &offset, &at, &run.damaged, &length)
            if error:
                return error
        if length == 0:
            continue
        if not found:
            found = True
            run.first, run.start = offset, at
        elif offset - run.first >= max_messages or at + length - run.start > max_bytes:
            break
        if as_lines:
            run.lines += line_bytes(range_.data.c_data + (at - range_.data.start), length, offset)
        at += length
        offset += 1
    if not found:
        run.first, run.start = offset, at
    run.next, run.end = offset, at
    return 0


cdef int entry_of(Range *range_, int64_t offset, IndexEntry *entry, bint *valid) noexcept nogil:
    """0 or errno."""
    cdef int64_t at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - range_.segment)
    cdef int error
    valid[0] = False
    if at + ENTRY_BYTES > range_.index.limit:
        return 0        # the index is shorter than it should be
    error = window_fill(&range_.index, range_.index_fd, at, ENTRY_BYTES)
    if error == 0 and at + ENTRY_BYTES <= range_.index.start + range_.index.length:
        valid[0] = entry_load(range_.index.c_data + (at - range_.index.start), offset, entry)
    return error


cdef int fill_before(Range *range_, int64_t offset) noexcept nogil:
    """Reads index entries up to this one, if it is not in memory: who goes back wants those before it. 0 or errno."""
    cdef int64_t at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - range_.segment), begin
    if range_.index.start <= at < range_.index.start + range_.index.length or at + ENTRY_BYTES > range_.index.limit:
        return 0
    begin = max(at - BACK_BYTES, <int64_t> INDEX_HEAD_BYTES)
    return window_fill(&range_.index, range_.index_fd, begin, at + ENTRY_BYTES - begin)


cdef bint is_blank(Range *range_, int64_t offset) noexcept nogil:
    """Of an index entry that entry_of() has just looked at."""
    cdef int64_t at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - range_.segment) - range_.index.start
    return 0 <= at <= range_.index.length - ENTRY_BYTES and entry_blank(range_.index.c_data + at)


cdef inline int64_t matching(Range *range_, int64_t offset, int64_t at) noexcept nogil:
    """Bytes of a record that matches what its index entry says, if both are in memory; 0: it has to be looked at by
    check_record(). Whether the entry is sound does not matter then: the record is what was written, where it was."""
    cdef int64_t entry_at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - range_.segment) - range_.index.start
    cdef int64_t record_at = at - range_.data.start, bytes_
    cdef const char *c_entry
    cdef const char *c_record
    if not 0 <= entry_at <= range_.index.length - ENTRY_BYTES or not 0 <= record_at <= range_.data.length - HEAD_BYTES:
        return 0
    c_entry = range_.index.c_data + entry_at
    c_record = range_.data.c_data + record_at
    bytes_ = SIZE_BYTES + <int64_t> load_i32(c_record)
    if entry_position(c_entry) != at or not HEAD_BYTES <= bytes_ <= range_.data.length - record_at:
        return 0
    return bytes_ if crc32c(<const unsigned char *> c_record, bytes_) == entry_crc(c_entry) else 0


cdef int check_record(Range *range_, int64_t offset, int64_t at, int64_t *length) noexcept nogil:
    """0 or errno; length: of the record that begins here, in memory by then, or 0 if it is not intact.

    If its index entry is damaged, it is intact as long as it is plausible and ends where the next entry says, or else
    where the next record begins. An entry of zeros never reached the disk, nor need the whole record.
    """
    cdef IndexEntry entry
    cdef bint valid
    cdef int64_t bytes_
    cdef const char *c_record
    cdef int error = entry_of(range_, offset, &entry, &valid)
    length[0] = 0
    if error or (entry.position != at if valid else is_blank(range_, offset)):
        return error
    if not valid and is_torn(&range_.torn, offset) and at >= range_.torn.at:
        return 0        # numbers are left, but no records
    error = window_fill(&range_.data, range_.data_fd, at, HEAD_BYTES)
    if error or range_.data.limit - at < HEAD_BYTES:
        return error
    bytes_ = SIZE_BYTES + <int64_t> load_i32(range_.data.c_data + (at - range_.data.start))
    if bytes_ < HEAD_BYTES or bytes_ > range_.data.limit - at:
        return 0
    # Without its entry, the head of the next record is wanted, too.
    error = window_fill(&range_.data, range_.data_fd, at, bytes_ if valid else bytes_ + HEAD_BYTES)
    if error or range_.data.limit - at < bytes_:
        return error
    c_record = range_.data.c_data + (at - range_.data.start)
    if valid:
        length[0] = bytes_ if crc32c(<const unsigned char *> c_record, bytes_) == entry.crc else 0
        return 0
    if not head_plausible(c_record, MOST_SEGMENT):
        return 0
    if offset + 1 == range_.next:
        length[0] = bytes_ if at + bytes_ == range_.data.limit else 0
        return 0
    error = entry_of(range_, offset + 1, &entry, &valid)
    if error:
        return error
    if entry.position == at + bytes_ if valid else is_head(range_, at + bytes_):
        length[0] = bytes_
    return 0


cdef bint is_head(Range *range_, int64_t at) noexcept nogil:
    """Whether what is in memory looks like the head of a record that fits into the segment."""
    return (range_.data.start + range_.data.length - at >= HEAD_BYTES
            and head_plausible(range_.data.c_data + (at - range_.data.start), range_.data.limit - at))


cdef int skip_damage(Range *range_, int64_t *offset, int64_t *at, int64_t *damaged, int64_t *length) noexcept nogil:
    """From a record that is not intact by its entry to the next one; 0 or errno. length: of the record, in memory by
    then, if it has no entry and the rules for damaged files let it count."""
    cdef IndexEntry entry, following
    cdef bint valid, valid_behind
    cdef int64_t from_ = offset[0]
    cdef bint blank = False
    cdef int error = entry_of(range_, from_, &entry, &valid)
    length[0] = 0
    if error == 0 and not valid:
        blank = is_blank(range_, from_)
    if error == 0 and valid and entry.position > at[0]:
        at[0] = entry.position      # what lies before it belongs to a record that has been counted
        return 0
    if error == 0:
        error = entry_of(range_, from_ + 1, &following, &valid_behind)
    if error:
        return error
    if from_ + 1 >= range_.next:
        offset[0] += 1
        at[0] = range_.data.limit
    elif valid_behind and following.position > at[0]:
        offset[0] += 1
        at[0] = following.position
    else:
        error = resume_at(range_, offset, at, length)
        if error == 0 and length[0] and not valid and not blank:
            return window_fill(&range_.data, range_.data_fd, at[0], length[0])
        if length[0]:
            offset[0] += 1
            at[0] += length[0]
            length[0] = 0
    damaged[0] += offset[0] - from_
    return error
