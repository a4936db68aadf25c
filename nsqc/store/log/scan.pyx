"""Compares a whole segment with its index: each entry, and each record with the checksum in its entry."""

import os

from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.segment cimport (BLOCK_BYTES, HEAD_BYTES, RECORD_TIMESTAMP_AT, Window, head_plausible,
                                      segment_next, window_fill, window_free)
from nsqc.store.disk.syscalls cimport io_open, io_size
from nsqc.store.log.format cimport ENTRY_BYTES, INDEX_HEAD_BYTES, MOST_SEGMENT, IndexEntry, entry_blank, entry_load
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64

# What is wrong with a message.
SOUND = IS_SOUND
BAD_ENTRY = IS_BAD_ENTRY
BAD_RECORD = IS_BAD_RECORD
BLANK = IS_BLANK


cdef inline const char *bytes_at(Window *window, int64_t at) noexcept nogil:
    return window.c_data + (at - window.start)


cdef bint load(Scan *scan, int64_t offset, IndexEntry *entry) noexcept nogil:
    """Whether there is a sound entry."""
    cdef int64_t at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - scan.first)
    if scan.error or scan.index.limit - at < ENTRY_BYTES:
        return False
    scan.error = window_fill(&scan.index, scan.index_fd, at, 2 * ENTRY_BYTES)
    if scan.error or scan.index.limit - at < ENTRY_BYTES:
        return False
    return entry_load(bytes_at(&scan.index, at), offset, entry)


cdef bint is_blank(Scan *scan, int64_t offset) noexcept nogil:
    """Of an entry that load() has just looked at."""
    cdef int64_t at = INDEX_HEAD_BYTES + ENTRY_BYTES * (offset - scan.first)
    return not scan.error and scan.index.limit - at >= ENTRY_BYTES and entry_blank(bytes_at(&scan.index, at))


cdef bint record_sound(Scan *scan, IndexEntry *entry, int64_t *length) noexcept nogil:
    cdef int64_t left = scan.data.limit - entry.position
    length[0] = 0
    if left < HEAD_BYTES:
        return False
    scan.error = window_fill(&scan.data, scan.data_fd, entry.position, HEAD_BYTES)
    if scan.error:
        return False
    length[0] = SIZE_BYTES + <int64_t> load_i32(bytes_at(&scan.data, entry.position))
    if length[0] < HEAD_BYTES or length[0] > left:
        return False
    scan.error = window_fill(&scan.data, scan.data_fd, entry.position, length[0])
    if scan.error or scan.data.start + scan.data.length < entry.position + length[0]:
        return False
    return crc32c(<const unsigned char *> bytes_at(&scan.data, entry.position), length[0]) == entry.crc


cdef bint record_begins(Scan *scan) noexcept nogil:
    """Whether what lies where the record should begin looks like one."""
    if scan.data.limit - scan.at < HEAD_BYTES:
        return False
    scan.error = window_fill(&scan.data, scan.data_fd, scan.at, HEAD_BYTES)
    return scan.error == 0 and head_plausible(bytes_at(&scan.data, scan.at), scan.data.limit - scan.at)


cdef int check(Scan *scan) noexcept nogil:
    """What is wrong with the message at offset; moves on."""
    cdef IndexEntry entry
    cdef IndexEntry behind
    cdef int64_t length
    cdef bint sound
    scan.skipped = False
    if not load(scan, scan.offset, &entry):
        scan.known = False
        return IS_BLANK if is_blank(scan, scan.offset) else IS_BAD_ENTRY
    sound = entry.position >= scan.at and record_sound(scan, &entry, &length)
    # Bytes that belong to no message may lie before it: a repair that found more records than numbers left them so.
    if not sound and (entry.position < scan.at or (scan.known and entry.position != scan.at and record_begins(scan))):
        scan.known = False
        return IS_BAD_ENTRY
    scan.skipped = scan.known and entry.position != scan.at
    if sound:
        scan.at = entry.position + length
        scan.known = True
        return IS_SOUND
    # Where it ends is known only from the entry behind it. A repair may have left no place for it.
    scan.known = load(scan, scan.offset + 1, &behind) and behind.position >= entry.position
    scan.at = behind.position if scan.known else entry.position + HEAD_BYTES
    return IS_BAD_RECORD


cdef int check_run(Scan *scan) noexcept nogil:
    """Goes on while the same is wrong with messages, and they lie one behind the other; returns that."""
    cdef int kind = check(scan)
    cdef int64_t at
    cdef bint known
    scan.offset += 1
    while scan.offset < scan.end and not scan.error:
        at, known = scan.at, scan.known
        if check(scan) != kind or scan.skipped:
            scan.at, scan.known = at, known     # the next run looks at it again
            break
        scan.offset += 1
    return kind


def scan_segment(str dat not None, str idx not None, first: int, end: int):
    """Runs of messages of the same kind, in order: (SOUND, BAD_ENTRY, BAD_RECORD or BLANK, first offset, end), and
    where the last sound record ends in the .dat. Raises OSError."""
    cdef Scan scan
    cdef bytes data_name = os.fsencode(dat), index_name = os.fsencode(idx)
    cdef int64_t begin, sound_end = 0
    cdef int kind
    memset(&scan, 0, sizeof(scan))
    scan.data_fd = io_open(data_name, O_RDONLY)
    if scan.data_fd < 0:
        raise OSError(-scan.data_fd, os.strerror(-scan.data_fd), dat)
    scan.index_fd = io_open(index_name, O_RDONLY)
    if scan.index_fd < 0:
        close(scan.data_fd)
        raise OSError(-scan.index_fd, os.strerror(-scan.index_fd), idx)
    scan.data.step = scan.index.step = BLOCK_BYTES
    scan.data.limit = io_size(scan.data_fd)
    scan.index.limit = io_size(scan.index_fd)
    scan.first = scan.offset = first
    scan.end = end
    scan.known = True
    runs = []
    while scan.offset < scan.end and not scan.error:
        begin = scan.offset
        with nogil:
            kind = check_run(&scan)
        if kind == IS_SOUND:
            sound_end = scan.at
        runs.append((kind, begin, scan.offset))
    window_free(&scan.data)
    window_free(&scan.index)
    close(scan.data_fd)
    close(scan.index_fd)
    if scan.error:
        raise OSError(scan.error, os.strerror(scan.error), dat)
    return runs, sound_end


def find_records(str dat not None, begin: int, end: int):
    """(position, length, timestamp, checksum) of the records between two positions, by the rules for damaged files.

    Raises OSError.
    """
    cdef Window window
    cdef bytes name = os.fsencode(dat)
    cdef int64_t at = begin, length = 0
    cdef int answer = 1
    cdef const char *c_at
    cdef int fd = io_open(name, O_RDONLY)
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd), dat)
    memset(&window, 0, sizeof(window))
    window.step = BLOCK_BYTES
    window.limit = min(<int64_t> end, io_size(fd))
    records = []
    while answer == 1:
        with nogil:
            answer = segment_next(&window, fd, MOST_SEGMENT, at, &at, &length)
        if answer == 1:
            c_at = bytes_at(&window, at)
            records.append((at, length, load_i64(c_at + RECORD_TIMESTAMP_AT),
                            crc32c(<const unsigned char *> c_at, length)))
            at += length
    window_free(&window)
    close(fd)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), dat)
    return records
