"""First looks at folders of logs. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memset, strlen, strncmp
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close
from cpython.bytes cimport PyBytes_AS_STRING

from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read, io_size
from nsqc.store.log.earlier cimport make_earlier
from nsqc.store.log.format cimport (ENTRY_BYTES, FARTHEST, INDEX_HEAD_BYTES, MOST_OFFSET, IndexEntry, IndexHead,
                                    entry_load, head_load)
from nsqc.store.log.jobs cimport PATH_BYTES, segment_path
from nsqc.store.log.journal cimport state_free
from nsqc.store.log.listing cimport (DIR, closedir, dirent_t, listing_add, listing_end, listing_free, nsqc_is_file,
                                     nsqc_next_entry, opendir)
from nsqc.store.log.replay cimport state_replay
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32

cdef extern from *:
    """
    #include <sys/stat.h>
    /* Size and time of the last change of an open file; 0 or -1. */
    static int nsqc_file_state(int fd, long long *size, long long *changed_ns) {
        struct stat state;
        if (fstat(fd, &state) < 0) return -1;
        *size = state.st_size;
        *changed_ns = state.st_mtim.tv_sec * 1000000000LL + state.st_mtim.tv_nsec;
        return 0;
    }
    #define NSQC_TAKE(place, from, to) __sync_bool_compare_and_swap(&(place), (from), (to))
    #define NSQC_LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
    #define NSQC_STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
    #define NSQC_NEXT(place) __atomic_fetch_add(&(place), 1, __ATOMIC_RELAXED)
    """
    int nsqc_file_state(int fd, long long *size, long long *changed_ns) nogil
    bint NSQC_TAKE(int place, int before, int after) nogil
    int NSQC_LOAD(int place) nogil
    void NSQC_STORE(int place, int value) nogil
    int64_t NSQC_NEXT(int64_t place) nogil

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    HAS_DAT = 1
    HAS_IDX = 2
    HAS_DUE = 4
    FIRST_NAMES = 8
    NAME_BYTES = 24             # of a file of a segment
    DIGITS = 20
    ID_BYTES = 19               # of the file that has the id
    MARK_BYTES = 25             # of the one that says where numbering continues
    MARK_PREFIX = 5
    BUFFER_BYTES = 8192         # for an index, or a record
    MOST_RECORD = 67108864      # a larger one is looked at by who mends
    WAITS = 0                   # steps of a look
    RUNS = 1
    DONE = 2


# ---------------------------------------------------------------------- names

cdef int64_t offset_named(const char *c_name) noexcept nogil:
    """20 digits; -1: they are not, or make one that no log comes to."""
    cdef int64_t offset = 0
    cdef int at
    if c_name[0] != c"0":
        return -1               # too large
    for at in range(DIGITS):
        if not c"0" <= c_name[at] <= c"9":
            return -1
        offset = 10 * offset + (c_name[at] - c"0")
    return offset if offset <= MOST_OFFSET else -1


cdef int kind_named(const char *c_name) noexcept nogil:
    """The kind of a segment's file; 0: it is not one."""
    if strlen(c_name) != NAME_BYTES or c_name[DIGITS] != c".":
        return 0
    if strncmp(c_name + DIGITS + 1, b"dat", 3) == 0:
        return HAS_DAT
    if strncmp(c_name + DIGITS + 1, b"idx", 3) == 0:
        return HAS_IDX
    return HAS_DUE if strncmp(c_name + DIGITS + 1, b"due", 3) == 0 else 0


cdef int64_t mark_named(const char *c_name) noexcept nogil:
    """Where numbering continues, as a name says; below 0: it is another name."""
    if strncmp(c_name, b"next.", MARK_PREFIX) != 0 or strlen(c_name) != MARK_BYTES:
        return -1
    return offset_named(c_name + MARK_PREFIX)


cdef uint64_t id_named(const char *c_name) noexcept nogil:
    cdef uint64_t value = 0
    cdef char digit
    cdef int at
    if strncmp(c_name, b"id.", 3) != 0 or strlen(c_name) != ID_BYTES:
        return 0
    for at in range(3, ID_BYTES):
        digit = c_name[at]
        if c"0" <= digit <= c"9":
            value = 16 * value + <uint64_t> (digit - c"0")
        elif c"a" <= digit <= c"f":
            value = 16 * value + <uint64_t> (digit - c"a" + 10)
        else:
            return 0
    return value


cdef int by_first(const void *c_left, const void *c_right) noexcept nogil:
    cdef int64_t left = (<const SegmentName *> c_left).first
    cdef int64_t right = (<const SegmentName *> c_right).first
    return -1 if left < right else left > right


cdef bint add_name(Seen *seen, int64_t first, int kind) noexcept nogil:
    cdef SegmentName *grown
    cdef int64_t room
    if seen.names_count == seen.names_room:
        room = max(<int64_t> FIRST_NAMES, 2 * seen.names_room)
        grown = <SegmentName *> realloc(seen.names, <size_t> room * sizeof(SegmentName))
        if grown is NULL:
            return False
        seen.names = grown
        seen.names_room = room
    seen.names[seen.names_count].first = first
    seen.names[seen.names_count].kinds = kind
    seen.names_count += 1
    return True


cdef bint list_names(Seen *seen, const char *c_folder) noexcept nogil:
    """False: it cannot be read, or has what has to be looked at more closely."""
    cdef dirent_t *entry
    cdef DIR *folder = opendir(c_folder)
    cdef int error = 0, kind
    cdef int64_t first, count
    cdef uint64_t found
    cdef bint clean = True
    if folder is NULL:
        return False
    while clean:
        entry = nsqc_next_entry(folder, &error)
        if entry is NULL:
            break
        kind = kind_named(entry.d_name)
        if kind and (c"0" <= entry.d_name[0] <= c"9"):
            first = offset_named(entry.d_name)
            clean = 0 <= first <= FARTHEST and nsqc_is_file(entry) and add_name(seen, first, kind)
            continue
        seen.mark = max(seen.mark, mark_named(entry.d_name))
        found = id_named(entry.d_name)
        if found and (seen.id == 0 or found < seen.id):
            seen.id = found
        count = seen.cursors.count
        clean = listing_add(&seen.cursors, entry.d_name) == 0 and (seen.cursors.count == count or nsqc_is_file(entry))
    closedir(folder)
    return clean and error == 0 and listing_end(&seen.cursors, c_folder) == 0


# ---------------------------------------------------------------------- segments

cdef bint record_intact(int dat, int64_t position, int64_t length, uint32_t crc) noexcept nogil:
    """Whether the record at a position has this length and checksum."""
    cdef char[BUFFER_BYTES] buffer
    cdef char *c_record = buffer
    cdef bint intact
    if not HEAD_BYTES <= length <= MOST_RECORD:
        return False
    if length > BUFFER_BYTES:
        c_record = <char *> malloc(<size_t> length)
        if c_record is NULL:
            return False
    intact = (io_read(dat, c_record, length, position) == length
              and SIZE_BYTES + <int64_t> load_i32(c_record) == length
              and crc32c(<const unsigned char *> c_record, length) == crc)
    if c_record is not buffer:
        free(c_record)
    return intact


cdef bint index_read(int idx, int64_t first, IndexHead *head, int64_t *entries, IndexEntry *last) noexcept nogil:
    """The head and the last entry of an index; False: they are not as they were written."""
    cdef char[BUFFER_BYTES] buffer
    cdef int64_t size = io_size(idx), at
    cdef const char *c_last
    if size < INDEX_HEAD_BYTES + ENTRY_BYTES or (size - INDEX_HEAD_BYTES) % ENTRY_BYTES:
        return False
    at = size - ENTRY_BYTES
    if size <= BUFFER_BYTES:
        if io_read(idx, buffer, size, 0) != size:
            return False
        c_last = buffer + at
    else:
        if (io_read(idx, buffer, INDEX_HEAD_BYTES, 0) != INDEX_HEAD_BYTES
                or io_read(idx, buffer + INDEX_HEAD_BYTES, ENTRY_BYTES, at) != ENTRY_BYTES):
            return False
        c_last = buffer + INDEX_HEAD_BYTES
    entries[0] = (size - INDEX_HEAD_BYTES) // ENTRY_BYTES
    return (head_load(buffer, head) and head.first == first
            and entry_load(c_last, first + entries[0] - 1, last) and not last.more)


cdef bint look_at_files(int dat, int idx, SegmentSeen *segment) noexcept nogil:
    """Whether a segment is as it was written up to its end, as far as its last entry and record say."""
    cdef IndexHead head
    cdef IndexEntry last
    cdef long long size, changed_ns
    cdef int64_t entries
    if not index_read(idx, segment.first, &head, &entries, &last):
        return False
    if nsqc_file_state(dat, &size, &changed_ns):
        return False
    segment.end = segment.first + entries
    segment.bytes = size
    segment.last_ns = changed_ns
    segment.base_ns = head.base_ns
    segment.unsynced = head.unsynced
    segment.time = last.time
    return record_intact(dat, last.position, size - <int64_t> last.position, last.crc)


cdef bint look_at_segment(const char *c_folder, SegmentName *name, SegmentSeen *segment) noexcept nogil:
    cdef char[PATH_BYTES] c_path
    cdef int dat, idx, due
    cdef bint clean = False
    segment.first = name.first
    if name.kinds & (HAS_DAT | HAS_IDX) != (HAS_DAT | HAS_IDX):
        return False
    segment_path(c_path, c_folder, name.first, b"dat")
    dat = io_open(c_path, O_RDONLY)
    if dat < 0:
        return False
    segment_path(c_path, c_folder, name.first, b"idx")
    idx = io_open(c_path, O_RDONLY)
    if idx >= 0:
        clean = look_at_files(dat, idx, segment)
        close(idx)
    close(dat)
    if clean and name.kinds & HAS_DUE:
        segment_path(c_path, c_folder, name.first, b"due")
        due = io_open(c_path, O_RDONLY)
        if due < 0:
            return False
        segment.due_bytes = io_size(due)
        close(due)
    return clean


cdef bint look_at_segments(Seen *seen, const char *c_folder) noexcept nogil:
    cdef int64_t index, count = 0
    if seen.names_count == 0:
        return True
    qsort(seen.names, <size_t> seen.names_count, sizeof(SegmentName), by_first)
    for index in range(seen.names_count):
        if count and seen.names[count - 1].first == seen.names[index].first:
            seen.names[count - 1].kinds |= seen.names[index].kinds
        else:
            seen.names[count] = seen.names[index]
            count += 1
    seen.segments = <SegmentSeen *> calloc(<size_t> count, sizeof(SegmentSeen))
    if seen.segments is NULL:
        return False
    seen.count = count
    for index in range(count):
        if not look_at_segment(c_folder, &seen.names[index], &seen.segments[index]):
            return False
        if index and seen.segments[index - 1].end > seen.segments[index].first:
            return False
    return True


# ---------------------------------------------------------------------- a folder

cdef void look(Seen *seen, const char *c_folder) noexcept nogil:
    seen.clean = (list_names(seen, c_folder) and look_at_segments(seen, c_folder)
                  and state_replay(&seen.state, c_folder, &seen.cursors, 0) == 0)
    free(seen.names)
    seen.names = NULL
    if not seen.clean:
        seen_free(seen)


cdef void seen_free(Seen *seen) noexcept nogil:
    free(seen.segments)
    free(seen.names)
    listing_free(&seen.cursors)
    state_free(&seen.state)
    memset(seen, 0, sizeof(Seen))


@cython.final
cdef class Looks:
    """Looks at folders."""

    def __init__(self, list folders not None):
        """folders: as os.fsencode() has them."""
        self.folders = folders
        self.count = len(folders)
        self.index = {folder: index for index, folder in enumerate(folders)}
        self.seen = <Seen *> calloc(<size_t> max(self.count, <int64_t> 1), sizeof(Seen))
        self.steps = <int *> calloc(<size_t> max(self.count, <int64_t> 1), sizeof(int))
        if self.seen is NULL or self.steps is NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t index
        if self.seen is not NULL:
            for index in range(self.count):
                seen_free(&self.seen[index])
        free(self.seen)
        free(self.steps)

    def run(self):
        """For a thread: looks at folders that nobody has begun to look at, until there are none."""
        cdef const char *c_folder
        cdef int64_t index
        while True:
            index = NSQC_NEXT(self.next)
            if index >= self.count:
                return
            if NSQC_TAKE(self.steps[index], WAITS, RUNS):
                c_folder = PyBytes_AS_STRING(self.folders[index])
                with nogil:
                    look(&self.seen[index], c_folder)
                    NSQC_STORE(self.steps[index], DONE)

    def take(self, bytes folder not None):
        """What a folder has: (id, segments as in the .pxd, Earlier, mark); once. None: that has to be found out by who
        can mend it."""
        cdef int64_t index = self.index.pop(folder), at
        cdef const char *c_folder = PyBytes_AS_STRING(folder)
        cdef Seen *seen = &self.seen[index]
        cdef SegmentSeen *segment
        with nogil:
            if NSQC_TAKE(self.steps[index], WAITS, RUNS):
                look(seen, c_folder)
            else:
                while NSQC_LOAD(self.steps[index]) != DONE:
                    sched_yield()
        if not seen.clean:
            return None
        segments = []
        for at in range(seen.count):
            segment = &seen.segments[at]
            segments.append((segment.first, segment.end, segment.bytes, segment.due_bytes, segment.base_ns,
                             segment.last_ns, segment.time, segment.unsynced))
        found = seen.id, segments, make_earlier(&seen.state, &seen.cursors), seen.mark
        seen_free(seen)
        return found
