"""From snapshots and journals to what channels have done. See the .pxd."""

import os

from libc.errno cimport EISDIR
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.segment cimport BLOCK_BYTES, Window, window_fill, window_free
from nsqc.store.disk.syscalls cimport io_open, io_size
from nsqc.store.log.journal cimport (MOST_FRAME_BYTES, CursorState, is_end, journal_head_sound, sections_begin,
                                     sections_plausible, state_apply, state_free, state_init)
from nsqc.store.log.listing cimport (JOURNAL, SNAPSHOT, TEMPORARY, CursorFile, Listing, cursor_path, listing_free,
                                     listing_read)
from nsqc.store.log.offsets cimport OffsetSet, Range, Waiting, Walk, offsets_next, waiting_next
from nsqc.store.log.ops cimport FRAME_BYTES, JOURNAL_HEAD_BYTES, SECTION_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32

cdef enum:
    FIRST_NUMBER = 1            # of the first journal of a log

cdef dict KINDS = {JOURNAL: "journal", SNAPSHOT: "snapshot", TEMPORARY: "temporary"}


# ---------------------------------------------------------------------- frames

cdef inline const char *bytes_at(Window *window, int64_t at) noexcept nogil:
    return window.c_data + (at - window.start)


cdef int64_t frame_length(Window *window, int fd, int64_t at) noexcept nogil:
    """Of the payload, as the frame says itself; 0: no frame begins here that could be whole; or -errno."""
    cdef int64_t length
    cdef int error
    if window.limit - at <= FRAME_BYTES:
        return 0
    error = window_fill(window, fd, at, FRAME_BYTES)
    if error:
        return -error
    if window.limit - at <= FRAME_BYTES:
        return 0
    length = <uint32_t> load_i32(bytes_at(window, at))
    return length if length <= MOST_FRAME_BYTES and length <= window.limit - at - FRAME_BYTES else 0


cdef int64_t frame_sound(Window *window, int fd, int64_t at) noexcept nogil:
    """Bytes of the payload of the frame that begins here; 0: it is not sound; or -errno."""
    cdef int64_t length = frame_length(window, fd, at)
    cdef const char *c_at
    cdef int error
    if length <= 0:
        return length
    error = window_fill(window, fd, at, FRAME_BYTES + length)
    if error:
        return -error
    if window.start + window.length < at + FRAME_BYTES + length:
        return 0
    c_at = bytes_at(window, at)
    return length if <uint32_t> load_i32(c_at + 4) == crc32c(<const unsigned char *> c_at + FRAME_BYTES, length) else 0


cdef int64_t frame_search(Window *window, int fd, int64_t at) noexcept nogil:
    """Where the next sound frame begins, behind one that is not; -1: nowhere; below that: -errno - 1."""
    cdef int64_t length = frame_length(window, fd, at), behind
    cdef int error
    if length > 0:
        # As a rule only the payload is damaged.
        behind = at + FRAME_BYTES + length
        if behind == window.limit:
            return behind
        length = frame_sound(window, fd, behind)
        if length > 0:
            return behind
    while length >= 0 and window.limit - at > FRAME_BYTES + 1:
        at += 1
        length = frame_length(window, fd, at)
        if length <= 0:
            continue
        # Checksums of everything that could be a frame would take as long as the square of what is searched.
        error = window_fill(window, fd, at, FRAME_BYTES + SECTION_BYTES)
        if error:
            return -error - 1
        if not sections_begin(bytes_at(window, at) + FRAME_BYTES, length):
            continue
        error = window_fill(window, fd, at, FRAME_BYTES + length)
        if error:
            return -error - 1
        if (window.start + window.length >= at + FRAME_BYTES + length
                and sections_plausible(bytes_at(window, at) + FRAME_BYTES, length)):
            length = frame_sound(window, fd, at)
            if length > 0:
                return at
    return -1 if length >= 0 else length - 1


cdef bint is_torn(Window *window, int fd, int64_t at) noexcept nogil:
    """Whether what follows is a frame whose writing was interrupted; a file system may have left zeros instead."""
    cdef int64_t length = 0
    if window.limit - at < FRAME_BYTES:
        return True
    if window_fill(window, fd, at, FRAME_BYTES) == 0 and window.limit - at >= FRAME_BYTES:
        length = <uint32_t> load_i32(bytes_at(window, at))
    if length != 0:
        return FRAME_BYTES + length > window.limit - at
    while at < window.limit:
        if window_fill(window, fd, at, 1) != 0 or (at < window.limit and bytes_at(window, at)[0] != 0):
            return False
        at += 1
    return True


# ---------------------------------------------------------------------- replaying

cdef int replay_frames(LogState *state, Window *window, int fd, bint *ended) noexcept nogil:
    """Applies the frames of a file. 0 or errno. ended: the last of them is the end of a snapshot."""
    cdef int64_t at = JOURNAL_HEAD_BYTES, length, behind
    cdef char[FRAME_BYTES] before       # the head of the frame that was applied last
    cdef int error
    memset(before, 0, FRAME_BYTES)
    while at < window.limit:
        length = frame_sound(window, fd, at)
        if length < 0:
            return <int> -length
        if length > 0:
            # A frame may be written twice, in case one of them is damaged; its ADVANCE must not be taken for a step
            # back.
            if memcmp(before, bytes_at(window, at), FRAME_BYTES):
                error = state_apply(state, bytes_at(window, at) + FRAME_BYTES, length)
                if error:
                    return error
                memcpy(before, bytes_at(window, at), FRAME_BYTES)
            ended[0] = is_end(bytes_at(window, at) + FRAME_BYTES, length)
            at += FRAME_BYTES + length
            continue
        ended[0] = False
        behind = frame_search(window, fd, at)
        if behind < -1:
            return <int> -(behind + 1)
        if behind < 0:
            if is_torn(window, fd, at):
                state.torn_bytes += window.limit - at
                return 0
            behind = window.limit
        state.damaged += 1
        state.damaged_bytes += behind - at
        at = behind
    return 0


cdef int replay_file(LogState *state, const char *c_folder, CursorFile *file, bint *ended) noexcept nogil:
    """0 or errno."""
    cdef char[PATH_BYTES] c_path
    cdef Window window
    cdef int64_t damaged = state.damaged
    cdef int fd, error
    cursor_path(c_path, c_folder, file)
    fd = io_open(c_path, O_RDONLY)
    if fd < 0:
        return -fd
    memset(&window, 0, sizeof(window))
    window.step = BLOCK_BYTES
    window.limit = io_size(fd)
    ended[0] = False
    error = <int> -window.limit if window.limit < 0 else window_fill(&window, fd, 0, JOURNAL_HEAD_BYTES)
    if not error and window.limit < JOURNAL_HEAD_BYTES:
        state.torn_bytes += window.limit
    elif not error:
        state.bytes += window.limit
        state.damaged += not journal_head_sound(bytes_at(&window, 0), <uint32_t> file.number)
        error = replay_frames(state, &window, fd, ended)
    if error == EISDIR:
        # It is not the journal that was there: nothing of it is left.
        state.damaged += 1
        error = 0
    file.damaged = state.damaged != damaged
    window_free(&window)
    close(fd)
    return error


cdef int64_t snapshot_before(Listing *listing, int64_t index, int64_t upto) noexcept nogil:
    """The index of the last snapshot before an index, and not behind a number; -1: none."""
    index -= 1
    while index >= 0 and not (listing.files[index].kind == SNAPSHOT
                              and (upto == 0 or listing.files[index].number <= upto)):
        index -= 1
    return index


cdef int64_t journals_between(Listing *listing, int64_t first, int64_t end, int64_t *highest) noexcept nogil:
    """How many journals there are from one number up to another (0: to the last)."""
    cdef int64_t index, count = 0
    highest[0] = first - 1
    for index in range(listing.count):
        if (listing.files[index].kind == JOURNAL and listing.files[index].number >= first
                and (end == 0 or listing.files[index].number < end)):
            count += 1
            highest[0] = listing.files[index].number
    return count


cdef int begin(LogState *state, const char *c_folder, Listing *listing, int64_t upto) noexcept nogil:
    """Begins with the last snapshot that is sound, or with nothing. 0 or errno.

    One that is not sound is used if what it was made of is no longer there.
    """
    cdef int64_t index = snapshot_before(listing, listing.count, upto), older, base, highest, damaged = 0
    cdef bint ended = False
    cdef int error
    while index >= 0:
        error = replay_file(state, c_folder, &listing.files[index], &ended)
        state.snapshot = listing.files[index].number
        if error:
            return error
        if ended and not listing.files[index].damaged:
            break
        listing.files[index].damaged = True
        damaged += 1
        older = snapshot_before(listing, index, upto)
        base = listing.files[older].number if older >= 0 else FIRST_NUMBER
        if journals_between(listing, base, state.snapshot, &highest) != state.snapshot - base:
            break
        state_free(state)
        index = older
    state.damaged += damaged
    return 0


cdef int state_replay(LogState *state, const char *c_folder, Listing *listing, int64_t upto) noexcept nogil:
    cdef int64_t index, first, highest, count
    cdef bint ended = False
    cdef int error
    state_init(state)
    error = begin(state, c_folder, listing, upto)
    if error:
        return error
    first = max(state.snapshot, <int64_t> FIRST_NUMBER)
    count = journals_between(listing, first, upto, &highest)
    state.missing = highest + 1 - first - count
    # A journal begins before the snapshot of its number is made.
    if state.snapshot and highest < first and upto == 0:
        state.missing += 1
    for index in range(listing.count):
        if (listing.files[index].kind == JOURNAL and listing.files[index].number >= first
                and (upto == 0 or listing.files[index].number < upto)):
            error = replay_file(state, c_folder, &listing.files[index], &ended)
            if error:
                return error
            state.last_number = listing.files[index].number
    return 0


# ---------------------------------------------------------------------- for Python

def replay(str folder not None):
    """What snapshots and journals of a folder say, as tuples: see nsqc/store/log/progress.py. Raises OSError."""
    cdef LogState state
    cdef Listing listing
    cdef bytes name = os.fsencode(folder)
    cdef const char *c_folder = name
    cdef int64_t index
    cdef int error
    state_init(&state)
    try:
        with nogil:
            error = listing_read(&listing, c_folder)
            if not error:
                error = state_replay(&state, c_folder, &listing, 0)
        if error:
            raise OSError(error, os.strerror(error), folder)
        channels = [channel_tuple(state.channels[index]) for index in range(state.count)]
        files = [(KINDS[listing.files[index].kind], listing.files[index].number, bool(listing.files[index].damaged))
                 for index in range(listing.count)]
        strays = [(KINDS[listing.files[index].kind], listing.files[index].number, False)
                  for index in range(listing.count, listing.count + listing.strays)]
        return (sorted(channels), state.topic_cursor if state.topic_known else None, files, strays,
                (state.damaged, state.damaged_bytes, state.missing, state.torn_bytes))
    finally:
        state_free(&state)
        listing_free(&listing)


cdef tuple channel_tuple(CursorState *channel):
    cdef Waiting *entry
    cdef Walk walk
    waiting = []
    memset(&walk, 0, sizeof(walk))
    entry = waiting_next(&channel.waiting, &walk)
    while entry is not NULL:
        waiting.append((entry.offset, entry.attempts, entry.due_ns))
        entry = waiting_next(&channel.waiting, &walk)
    return (channel.number, channel.name[:channel.name_bytes].decode("ascii", "replace"), channel.cursor,
            ranges_list(&channel.out), ranges_list(&channel.skips), waiting)


cdef list ranges_list(OffsetSet *offsets):
    cdef Range *found
    cdef Walk walk
    ranges = []
    memset(&walk, 0, sizeof(walk))
    found = offsets_next(offsets, &walk)
    while found is not NULL:
        ranges.append((found.first, found.end))
        found = offsets_next(offsets, &walk)
    return ranges
