"""Opens a log: which frames and positions count, after any kind of end; also offline. See the .pxd."""

cimport cython
import os
from contextlib import suppress
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport ENODATA, ENOENT, ENOMEM, EOPNOTSUPP, errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, strtoll
from libc.string cimport memcmp, memcpy, memset, strcmp, strlen, strncmp, strrchr
from posix.fcntl cimport O_NONBLOCK, O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.fileio cimport PATH_BYTES, io_open, io_read, io_size
from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.log.cursor cimport make_earlier
from nsqc.store.log.frame cimport (HASH_BYTES, MORE, MOST_OFFSET, RECORD_SIZE, Buffer, Deferral, Frame, Walk,
                                   buffer_free, buffer_room, deferral_at, delay_add, frame_records, is_offset,
                                   walk_data, walk_free, walk_next, walk_open)
from nsqc.store.log.journal cimport files_add, files_free, files_load, journal_number
from nsqc.store.log.names import SUMMARY, TEMPORARY, new_id
from nsqc.store.log.positions cimport state_free
from nsqc.store.log.segment cimport (COPY_AT, FRAMES_AT, HEAD_DAMAGED, HEAD_SOUND, HEAD_UNKNOWN, ID_ENTRY, RESERVE,
                                     Index, Segment, Segments, Summary, head_load, head_read, ids_collect, index_free,
                                     index_note, index_read, lost_before, manifest_end, manifest_read, manifest_write,
                                     segment_ends_at, segment_path, segment_tuple, segments_add, segments_free,
                                     segments_last, segments_reserve, summary_read)
from nsqc.store.log.topiclog cimport TopicLog, losses_found
from nsqc.store.memory cimport wall_ns
from nsqc.store.publishids cimport PublishId, PublishIds
from nsqc.wire.hton cimport load_i64


# ====================================================================== found

cdef extern from *:
    """
    #include <dirent.h>
    #include <errno.h>
    #include <sys/stat.h>
    /* The next entry; NULL at the end, or with an errno. */
    static struct dirent *nsqc_next_entry(DIR *folder, int *error) {
        struct dirent *entry;
        errno = 0;
        entry = readdir(folder);
        *error = entry ? 0 : errno;
        return entry;
    }
    /* Whether it is a file, or a link to one. */
    static int nsqc_leads_to_file(DIR *folder, struct dirent *entry) {
        struct stat state;
        if (entry->d_type == DT_REG) return 1;
        return fstatat(dirfd(folder), entry->d_name, &state, 0) == 0 && S_ISREG(state.st_mode);
    }
    """
    ctypedef struct DIR:
        pass
    ctypedef struct dirent_t "struct dirent":
        char *d_name
    DIR *opendir(const char *path) nogil
    dirent_t *nsqc_next_entry(DIR *folder, int *error) nogil
    bint nsqc_leads_to_file(DIR *folder, dirent_t *entry) nogil
    int closedir(DIR *folder) nogil

cdef enum:
    DIGITS = 20
    SCAN_BYTES = 1048576        # of a read
    UNKNOWN_SALT = 1            # in a lost header: there was a segment before it
    FOREIGN = -1                # a sequence number


cdef void folder_find(Found *found, const char *c_folder, bint power_failed, bint keeps) noexcept nogil:
    """power_failed: since the last run. Then the reserved offsets go into the manifest; see `resume`."""
    cdef int answer
    memset(found, 0, sizeof(Found))
    found.bad_first = -1
    if not list_names(found, c_folder):
        return
    answer = manifest_read(c_folder, &found.manifest)
    found.has_manifest = answer == HEAD_SOUND
    if answer == HEAD_UNKNOWN or answer < 0 and answer != -ENOENT:
        fail(found, -answer if answer < 0 else EOPNOTSUPP, -1)
        return
    qsort(found.segments.items, <size_t> found.segments.count, sizeof(Segment), by_first)
    if read_heads(found, c_folder) and find_ends(found, c_folder, power_failed):
        answer = files_load(&found.cursors, &found.state, c_folder)
        if answer:
            fail(found, answer, -1)
        elif power_failed and not found.clean:
            keep_place(found, c_folder, keeps)


cdef void found_free(Found *found) noexcept nogil:
    segments_free(&found.segments)
    index_free(&found.index)
    buffer_free(&found.delays)
    files_free(&found.cursors)
    state_free(&found.state)
    memset(found, 0, sizeof(Found))


cdef bint fail(Found *found, int error, int64_t first) noexcept nogil:
    found.error = error
    found.bad_first = first
    return False


# ---------------------------------------------------------------------- names

cdef bint list_names(Found *found, const char *c_folder) noexcept nogil:
    cdef DIR *folder = opendir(c_folder)
    cdef dirent_t *entry
    cdef char *c_end
    cdef int64_t first, number
    cdef int error = 0
    if folder is NULL:
        return fail(found, errno, -1)
    while error == 0:
        entry = nsqc_next_entry(folder, &error)
        if entry is NULL:
            break
        if c"0" <= entry.d_name[0] <= c"9" and strlen(entry.d_name) == DIGITS + 4:
            first = strtoll(entry.d_name, &c_end, 10)
            if c_end - entry.d_name != DIGITS or not is_offset(first) or not nsqc_leads_to_file(folder, entry):
                continue
            if strcmp(c_end, b".log") == 0:
                error = add_segment(found, first)
            elif strcmp(c_end, b".dat") == 0 or strcmp(c_end, b".idx") == 0:
                error = OLD_FORMAT
        elif strncmp(entry.d_name, b"cursors.", 8) == 0:
            number = journal_number(entry.d_name)
            c_end = strrchr(entry.d_name, c".")
            if number:
                error = files_add(&found.cursors, number)
            elif strcmp(c_end, b".journal") == 0 or strcmp(c_end, b".snapshot") == 0:
                error = OLD_FORMAT
    closedir(folder)
    return fail(found, error, -1) if error else True


cdef int add_segment(Found *found, int64_t first) noexcept nogil:
    cdef Segments *segments = &found.segments
    if segments_reserve(segments, 1) < 0:
        return ENOMEM
    memset(&segments.items[segments.count], 0, sizeof(Segment))
    segments.items[segments.count].first = first
    segments.count += 1
    return 0


cdef int by_first(const void *c_left, const void *c_right) noexcept nogil:
    cdef int64_t left = (<const Segment *> c_left).first
    cdef int64_t right = (<const Segment *> c_right).first
    return -1 if left < right else left > right


# ---------------------------------------------------------------------- headers

cdef bint read_heads(Found *found, const char *c_folder) noexcept nogil:
    """Reads the headers; keeps the segments that count, oldest first."""
    cdef Segments *segments = &found.segments
    cdef int64_t at, kept = 0, last = 0
    cdef Segment *segment
    for at in range(segments.count - 1, -1, -1):
        if not read_one(found, c_folder, &segments.items[at]):
            return False
        if segments.items[at].sequence == 0:
            replace_head(found, at)
    for at in range(segments.count):
        segment = &segments.items[at]
        if segment.sequence > last:
            last = segment.sequence
            found.unlisted += found.has_manifest and last > found.manifest.newest
            segments.items[kept] = segment[0]
            kept += 1
    segments.count = kept
    found.lost_newest = found.manifest.newest > last
    return True


cdef bint read_one(Found *found, const char *c_folder, Segment *segment) noexcept nogil:
    """Leaves the sequence number 0 if the header is lost, and below that if the segment does not count."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t first = segment.first
    cdef int answer, fd
    segment_path(c_path, c_folder, first)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd < 0:
        return fail(found, -fd, first)
    answer = head_read(fd, segment)
    segment.size = io_size(fd)
    close(fd)
    if answer < 0 or segment.size < 0:
        return fail(found, -answer if answer < 0 else <int> -segment.size, first)
    if answer == HEAD_UNKNOWN:
        return fail(found, EOPNOTSUPP, first)
    if answer == HEAD_DAMAGED:
        segment.sequence = 0
    elif segment.first != first or (found.has_manifest and segment.log_id != found.manifest.log_id):
        segment.sequence = FOREIGN      # a file that was renamed or copied here belongs to another log
    segment.first = first
    return True


cdef void replace_head(Found *found, int64_t at) noexcept nogil:
    """Replaces a lost header from the successor's header or the manifest."""
    cdef Segment *segment = &found.segments.items[at]
    cdef Segment *next_ = segment + 1
    cdef int64_t size = segment.size, first = segment.first
    memset(segment, 0, sizeof(Segment))
    segment.size = size
    segment.first = first
    segment.before_salt = UNKNOWN_SALT
    if at + 1 < found.segments.count:
        if next_.sequence <= 0 or next_.before_salt <= UNKNOWN_SALT:
            return
        segment.salt = next_.before_salt
        segment.sequence = next_.sequence - 1
        segment.log_id = next_.log_id
        segment.before_records = next_.before_records - (next_.before_end - first)
    elif found.manifest.newest and found.manifest.newest_first == first:
        segment.salt = found.manifest.newest_salt
        segment.sequence = found.manifest.newest
        segment.log_id = found.manifest.log_id
        segment.before_records = -1


# ---------------------------------------------------------------------- ends

cdef bint find_ends(Found *found, const char *c_folder, bint power_failed) noexcept nogil:
    cdef Segments *segments = &found.segments
    cdef Segment *segment
    cdef Segment *next_
    cdef int64_t at, now_ns = wall_ns()
    cdef bint scans = False
    for at in range(segments.count):
        segment = &segments.items[at]
        next_ = segment + 1 if at + 1 < segments.count else NULL
        if next_ is NULL:
            if (not power_failed and found.manifest.newest == segment.sequence
                    and 0 < found.manifest.end_size == segment.size):
                segment.position = found.manifest.end_position
                segment.end = found.manifest.end
                segment.due_ns = found.manifest.end_due_ns
                segment.time_ns = found.manifest.end_time_ns
                found.clean = True
        else:
            segment_ends_at(segment, next_)
        scans = not is_end(segment, segment.position, segment.end, next_.first if next_ is not NULL else INT64_MAX)
        if not segment.remote:
            segment.position = min(segment.position, max(segment.size, <int64_t> FRAMES_AT))
        if (scans or segment.due_ns > now_ns) and not look_into(found, c_folder, segment, next_, scans, power_failed,
                                                                now_ns):
            return False
    found.clean = segments.count == 0 or found.clean and not scans
    if scans:
        keep_known_end(found, segments_last(segments))
    settle(segments)
    return True


cdef bint is_end(const Segment *segment, int64_t position, int64_t end, int64_t most) noexcept nogil:
    """Whether a segment can end here: a record takes at least RECORD_SIZE bytes. Its file may be shorter."""
    return (FRAMES_AT <= position
            and segment.first <= end <= min(most, segment.first + (position - FRAMES_AT) // RECORD_SIZE))


cdef bint look_into(Found *found, const char *c_folder, Segment *segment, const Segment *next_, bint scans,
                    bint power_failed, int64_t now_ns) noexcept nogil:
    """Finds delays that are not due, and the end if `scans`."""
    cdef char c_path[PATH_BYTES]
    cdef Segment seen = segment[0]
    cdef Index index
    cdef int error, fd
    segment_path(c_path, c_folder, segment.first)
    fd = io_open(c_path, O_RDONLY)
    if fd < 0:
        return fail(found, -fd, segment.first)
    memset(&index, 0, sizeof(index))
    error = segment_scan(fd, segment.size if scans else segment.position,
                         next_.first if next_ is not NULL else INT64_MAX,
                         power_failed and next_ is NULL and scans, now_ns, &seen, &index, &found.delays)
    close(fd)
    if scans:
        segment[0] = seen
    if scans and next_ is NULL:
        found.index = index
    else:
        index_free(&index)
    return fail(found, error, segment.first) if error else True


cdef int segment_scan(int fd, int64_t limit, int64_t most, bint power_failed, int64_t now_ns, Segment *segment,
                      Index *index, Buffer *delays) noexcept nogil:
    """Finds the valid part of a segment, in the bytes of its file up to a limit, below an offset. 0 or errno.

    Valid frames count. Bytes between them were damaged later. The last batch counts if all its parts exist. Only a
    power failure can leave a hole where bytes were never durable: then the frames after the first hole past the
    highest `synced` do not count, as they were never acknowledged as durable.
    """
    cdef int error = walk_over(fd, limit, most, INT64_MAX, now_ns, segment, NULL, NULL) if power_failed else 0
    return error or walk_over(fd, limit, most, segment.synced if power_failed else INT64_MAX, now_ns, segment, index,
                              delays)


cdef int walk_over(int fd, int64_t limit, int64_t most, int64_t durable, int64_t now_ns, Segment *segment,
                   Index *index, Buffer *delays) noexcept nogil:
    """Walks to the first hole at or after `durable`; without delays, only finds `synced`. 0 or errno."""
    cdef Walk walk
    cdef int64_t records = 0, counted = 0
    cdef int answer
    walk_open(&walk, fd, segment.salt, FRAMES_AT, limit, segment.first, most)
    walk.step = SCAN_BYTES
    segment.position, segment.end, segment.time_ns = FRAMES_AT, segment.first, segment.before_time_ns
    while True:
        answer = walk_next(&walk)
        if answer <= 0 or (walk.hole >= durable and delays is not NULL):
            break
        if walk.frame.synced <= walk.position:      # a foreign writer may store other values
            segment.synced = max(segment.synced, walk.frame.synced)
        if delays is NULL:
            continue
        records += walk.frame.records
        index_note(index, &walk.frame, walk.position)
        segment.time_ns = max(segment.time_ns, walk.frame.time_ns)
        if walk.frame.delays:
            segment.due_ns = max(segment.due_ns, keep_delays(walk_data(&walk), &walk.frame, now_ns, delays))
        if not walk.frame.flags & MORE:
            segment.position = walk.next
            segment.end = min(walk.frame.first + walk.frame.records, most)
            counted = records
    segment.damaged = max(segment.end - segment.first - counted, <int64_t> 0)
    walk_free(&walk)
    return -min(answer, 0)


cdef int64_t keep_delays(const char *c_frame, const Frame *frame, int64_t now_ns, Buffer *delays) noexcept nogil:
    """Keeps delays that are not due; returns the latest due time. Without memory messages are delivered too early."""
    cdef int64_t latest = 0
    cdef Deferral deferral
    cdef uint32_t index
    for index in range(frame.delays):
        deferral = deferral_at(c_frame, frame, index)
        latest = max(latest, deferral.due_ns)
        if deferral.due_ns > now_ns and buffer_room(delays, sizeof(Deferral)) == 0:
            (<Deferral *> (delays.c_data + delays.length))[0] = deferral
            delays.length += sizeof(Deferral)
    return latest


cdef void keep_known_end(Found *found, Segment *last) noexcept nogil:
    """The newest segment ends no earlier than the manifest says: records that its file lacks before that are lost."""
    if (found.manifest.newest == last.sequence and last.end < found.manifest.end
            and is_end(last, found.manifest.end_position, found.manifest.end, INT64_MAX)):
        last.damaged += found.manifest.end - last.end
        last.end = found.manifest.end
        last.position = max(last.position, min(found.manifest.end_position, last.size))
        last.due_ns = max(last.due_ns, found.manifest.end_due_ns)


cdef void settle(Segments *segments) noexcept nogil:
    """Counts the records before a segment whose header is lost, or counts fewer than there are, and what is missing."""
    cdef Segment segment
    cdef int64_t at, records = 0, count = segments.count
    segments.count = 0
    for at in range(count):
        segment = segments.items[at]
        segment.before_records = max(segment.before_records, records)
        records = segment.before_records + segment.end - segment.first
        segments_add(segments, &segment)


cdef void keep_place(Found *found, const char *c_folder, bint keeps) noexcept nogil:
    """Records the end that was found, so that later starts find the same, and resumes offsets after all that may have
    been used. If this cannot be written, the next start finds it again."""
    cdef const Segment *last = segments_last(&found.segments)
    found.manifest.resume = max(found.manifest.resume, found.manifest.reserved, last.end)
    if found.manifest.newest < last.sequence:
        # The lost manifest may have reserved more.
        found.manifest.resume = min(found.manifest.resume + RESERVE, MOST_OFFSET)
        found.manifest.log_id = last.log_id
        found.manifest.newest = last.sequence
        found.manifest.newest_first = last.first
        found.manifest.newest_salt = last.salt
    found.manifest.reserved = min(found.manifest.resume + RESERVE, MOST_OFFSET)
    manifest_end(&found.manifest, last, last.size)
    if keeps:
        manifest_write(c_folder, &found.manifest, True)


# ====================================================================== recovery

class LogError(OSError):
    """An unusable folder; its files stay unchanged."""


@cython.final
cdef class Opened:
    """A log about to be used."""

    def __dealloc__(self):
        found_free(&self.found)

    @property
    def id(self) -> int:
        """0: none."""
        if self.found.has_manifest:
            return self.found.manifest.log_id
        return segments_last(&self.found.segments).log_id if self.found.segments.count else 0

    @property
    def has_manifest(self) -> bool:
        """Whether the manifest exists and is sound."""
        return self.found.has_manifest

    @property
    def clean(self) -> bool:
        """Whether nothing was written since a stop or a start."""
        return self.found.clean

    @property
    def unlisted(self) -> int:
        """Segments that are newer than the manifest."""
        return self.found.unlisted

    @property
    def segments(self) -> list[Segment]:
        """A nsqc.store.log.names.Segment for each, oldest first."""
        cdef int64_t at
        return [segment_tuple(&self.found.segments.items[at]) for at in range(self.found.segments.count)]

    @property
    def delays(self) -> list[tuple[int, int]]:
        """(offset, due time in nanoseconds since 1970) of delayed messages that are not due."""
        cdef const Deferral *items = <const Deferral *> self.found.delays.c_data
        cdef int64_t at
        return [(items[at].offset, items[at].due_ns)
                for at in range(self.found.delays.length // <int64_t> sizeof(Deferral))]


cdef Opened make_opened(Found *found, str folder):
    """Takes over what was read. Raises LogError."""
    cdef Opened opened = Opened.__new__(Opened)
    cdef Segment *first
    opened.found = found[0]
    memset(found, 0, sizeof(Found))
    raise_refusal(&opened.found, folder)
    opened.earlier = make_earlier(&opened.found.state, &opened.found.cursors)
    if opened.found.segments.count:
        first = &opened.found.segments.items[0]
        first.lost = lost_first(first, opened.earlier)
        opened.found.segments.missing += first.lost
        opened.next = segments_last(&opened.found.segments).end
    elif (opened.earlier.topic_cursor or 0) <= opened.found.manifest.reserved + RESERVE:
        opened.next = opened.earlier.topic_cursor or 0
    opened.resume_at = max(opened.next, opened.found.manifest.resume)
    # Offsets are reserved before they are used, so no channel gets further, even with an older manifest.
    if opened.earlier.reached <= max(opened.next, opened.found.manifest.reserved) + RESERVE:
        opened.resume_at = max(opened.resume_at, opened.earlier.reached)
    else:
        opened.earlier.damaged += 1
    if opened.found.lost_newest:
        opened.lost = max(1, opened.resume_at - opened.next,
                          opened.found.manifest.end - opened.found.manifest.newest_first)
        opened.resume_at = max(opened.resume_at, opened.found.manifest.reserved)
    elif opened.found.segments.count and opened.resume_at == opened.earlier.reached:
        opened.had = opened.resume_at - opened.next
    return opened


cdef int64_t lost_first(const Segment *head, Earlier earlier) noexcept:
    """Records of segments before the first one that are missing: retention has not removed them."""
    cdef int64_t end = head.before_end if head.before_end else head.first
    if head.before_salt == 0 or earlier.damaged and earlier.removed_to == 0:
        return lost_before(head)        # a damaged journal may have lost what retention has removed
    return max(min(head.before_records, end - earlier.removed_to), <int64_t> 0)


cdef int raise_refusal(Found *found, str folder) except -1:
    where = f"{folder}/{found.bad_first:020d}.log" if found.bad_first >= 0 else folder
    if found.error == OLD_FORMAT:
        raise LogError(0, "it has a log in a format that no release has written: move the folder away, or read it with "
                          "the version that made it", folder)
    if found.error == EOPNOTSUPP:
        raise LogError(0, "a later version has written it: use that, or move the folder away", where)
    if found.error:
        raise OSError(found.error, os.strerror(found.error), where)
    return 0


def read_folder(str folder not None, bint power_failed=False, bint keeps=False) -> Opened:
    """Reads a folder: all headers and journals, and the frames of a segment whose end is unknown. Raises OSError.

    power_failed: since the last run. keeps: records the end that it found in the manifest.
    """
    (opened,) = read_folders([folder], power_failed, keeps)
    if isinstance(opened, Opened):
        return opened
    raise opened


def read_folders(folders: list[str], bint power_failed, bint keeps) -> list[Opened | OSError]:
    """The same for many folders: a thread that reads ahead does not wait for the interpreter between two of them."""
    cdef list names = [os.fsencode(folder) for folder in folders], answers = []
    cdef Py_ssize_t count = len(folders), at
    cdef Found *c_found = <Found *> calloc(<size_t> count, sizeof(Found))
    cdef const char **c_names = <const char **> calloc(<size_t> count, sizeof(char *))
    try:
        if count and (c_found is NULL or c_names is NULL):
            raise MemoryError
        for at in range(count):
            c_names[at] = PyBytes_AS_STRING(names[at])
        with nogil:
            for at in range(count):
                folder_find(&c_found[at], c_names[at], power_failed, keeps)
        for at in range(count):
            try:
                answers.append(make_opened(&c_found[at], folders[at]))
            except OSError as error:
                answers.append(error)
        return answers
    finally:
        for at in range(count if c_found is not NULL else 0):
            found_free(&c_found[at])
        free(c_found)
        free(c_names)


def enter(TopicLog log not None, Opened opened not None):
    """Moves the contents of a folder into a new log: its segments are there from now on."""
    cdef Found *found = &opened.found
    cdef Segment *last
    cdef int64_t at
    log_id = opened.id or new_id()
    log.segments = found.segments
    memset(&found.segments, 0, sizeof(Segments))
    last = segments_last(&log.segments)
    for at in range(log.segments.count):
        if log.segments.items[at].damaged:
            log.damaged += log.segments.items[at].damaged
            log.damage.append((log.segments.items[at].first, log.segments.items[at].end))
    log.manifest = found.manifest
    log.manifest.log_id = log_id
    log.id_key = found.manifest.id_key
    log.lost = opened.lost + opened.had
    log.index = found.index
    memset(&found.index, 0, sizeof(Index))
    log.index.has_ids |= log.id_key[0] != 0     # frames that were not scanned may have some
    log.next = log.visible = log.tail_first = opened.next
    log.resume_at = opened.resume_at
    log.ends = not found.clean or last is NULL or log.resume_at > log.next
    if last is not NULL:
        log.unsynced_files.synced = first_unsynced(&log.segments)
        log.durable_to = last.synced
    if log.damaged or log.lost or log.segments.missing:
        losses_found(log)
    log.clock.refresh()
    for at in range(found.delays.length // <int64_t> sizeof(Deferral)):
        delay_add(&log.delays, &(<const Deferral *> found.delays.c_data)[at], log.longest_delay_ns, log.clock)


cdef int64_t first_unsynced(Segments *segments) noexcept:
    """The first offset of the first segment that may not be durable, according to the newest one."""
    cdef Segment *last = segments_last(segments)
    cdef int64_t at
    for at in range(segments.count):
        if segments.items[at].sequence >= last.durable_from:
            return segments.items[at].first
    return last.first


# ---------------------------------------------------------------------- publish ids

cdef int restore_ids(TopicLog log, PublishIds ids) except -1:
    cdef int64_t since_ns = log.clock.wall - ids.window_ns, first, left = ids.limit
    cdef dict segments = {log.segments.items[first].first: first for first in range(log.segments.count)}
    cdef dict summaries = summaries_in(log.folder)
    cdef list found = []        # newest first
    cdef BytesOfIds some
    for first in sorted({*summaries, *segments}, reverse=True):
        if left <= 0 or first < 0:
            break
        some = BytesOfIds.__new__(BytesOfIds)
        if first in summaries and read_summary(log, first, since_ns, some, summaries):
            log.summaries.insert(0, (first, some.time_ns, some.count()))
        elif (first in segments and not log.segments.items[<int64_t> segments[first]].remote
              and log.segments.items[<int64_t> segments[first]].time_ns >= since_ns):
            read_ids(log, &log.segments.items[<int64_t> segments[first]], some)
        left -= some.count()
        found.append(some)
    for some in reversed(found):
        enter_ids(log, ids, some)
    remove_all(log, summaries)
    return 0


cdef int drop_ids(TopicLog log) except -1:
    remove_all(log, summaries_in(log.folder))
    return 0


@cython.final
cdef class BytesOfIds:
    """Ids read from a file."""

    cdef Buffer data
    cdef int64_t time_ns

    def __dealloc__(self):
        buffer_free(&self.data)

    cdef int64_t count(self) noexcept:
        return self.data.length // ID_ENTRY


cdef dict summaries_in(str folder):
    """Paths of summaries by the first offsets of their segments; below 0: unfinished ones, and those of no segment."""
    cdef dict found = {}
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            match = SUMMARY.match(name)
            if match and match.end() == len(name) and int(match[1]) <= MOST_OFFSET:
                found[int(match[1])] = f"{folder}/{name}"
            elif match and (SUMMARY.fullmatch(name) or TEMPORARY.fullmatch(name)):
                found[-1 - len(found)] = f"{folder}/{name}"
    return found


cdef int remove_all(TopicLog log, dict summaries) except -1:
    if summaries:
        log.syncer.remove([(path, "") for path in summaries.values()])
    return 0


cdef bint read_summary(TopicLog log, int64_t first, int64_t since_ns, BytesOfIds some, dict summaries) except -1:
    """Whether a summary counts: its segment ended before the end of the log, and its ids are still remembered. Leaves
    in the dict what is to be removed."""
    cdef Summary summary
    cdef int error = summary_read(log.c_folder, first, &summary, NULL)
    if error == 0 and (summary.log_id != log.manifest.log_id or not first <= summary.end <= log.next
                       or memcmp(summary.key, log.manifest.id_key, sizeof(summary.key)) or summary.time_ns < since_ns):
        return False
    some.time_ns = summary.time_ns
    error = error or summary_read(log.c_folder, first, &summary, &some.data)
    if error != ENODATA:
        del summaries[first]
    return not left_out(log, first, error)


cdef int read_ids(TopicLog log, const Segment *segment, BytesOfIds some) except -1:
    left_out(log, segment.first, ids_collect(log.c_folder, segment, &some.data))
    return 0


cdef bint left_out(TopicLog log, int64_t first, int error) except -1:
    """Reports ids that cannot be read."""
    if error == ENOMEM:
        raise MemoryError
    if error:
        log.log.error("LOG(%s): failed to read the publish ids of the segment at offset %d: publishes that are retried "
                      "now may be stored again - %s", log.name, first,
                      "damaged" if error == ENODATA else os.strerror(error))
    return error != 0


cdef int enter_ids(TopicLog log, PublishIds ids, BytesOfIds some) except -1:
    cdef const char *c_entry
    cdef PublishId id
    cdef int64_t at, age_ns
    for at in range(some.count()):
        c_entry = some.data.c_data + at * ID_ENTRY
        age_ns = max(log.clock.wall - load_i64(c_entry + HASH_BYTES), <int64_t> 0)
        if age_ns <= ids.window_ns:
            memcpy(&id, c_entry, sizeof(id))
            if ids.restore(&id, log.clock.monotonic, age_ns) < 0:
                raise MemoryError
    return 0


# ====================================================================== offline
# Reads frames, headers and indexes for checks of segments.

cdef int opened(str path) except -1:
    return os.open(path, O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read_frames(str path not None, segment: Segment) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Reads all frames of a segment: sound records, their size in files of disk queues, and damage: positions, each
    with the first lost offset and the one after the last. Raises OSError."""
    cdef int64_t first = segment[0], end = segment[1], at = first, next_, records = 0, size = 0
    cdef int answer = 1
    cdef Walk walk
    cdef int fd = opened(path)
    damage = []
    walk_open(&walk, fd, segment[3], FRAMES_AT, segment[2], first, end)
    try:
        while answer == 1:
            with nogil:
                answer = walk_next(&walk)
                while answer == 1 and walk.hole < 0 and walk.frame.first == at:
                    at += walk.frame.records
                    records += walk.frame.records
                    size += queue_bytes(&walk)
                    answer = walk_next(&walk)
            next_ = walk.frame.first if answer == 1 else end
            if walk.hole >= 0 or next_ > at:
                damage.append((walk.hole if walk.hole >= 0 else walk.position if answer == 1 else walk.next, at, next_))
            if answer == 1:
                at = next_ + walk.frame.records
                records += walk.frame.records
                size += queue_bytes(&walk)
    finally:
        walk_free(&walk)
        close(fd)
    if answer == -EOPNOTSUPP:
        raise LogError(0, "a later version has written it: use that, or move the folder away", path)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), path)
    return records, size, damage


cdef inline int64_t queue_bytes(const Walk *walk) noexcept nogil:
    """Of the records of a frame, in a disk queue."""
    return frame_records(&walk.frame) + <int64_t> walk.frame.records * (HEAD_BYTES - RECORD_SIZE)


def read_head(str path not None) -> tuple[int, int, int, int]:
    """The header of a segment: the number of sound copies (of two); then the log's id, sequence and first offset, all 0
    without a sound copy. Raises OSError."""
    cdef char c_block[FRAMES_AT]
    cdef Segment head
    cdef int64_t got
    cdef int sound
    cdef int fd = opened(path)
    memset(c_block, 0, FRAMES_AT)
    memset(&head, 0, sizeof(head))
    got = io_read(fd, c_block, FRAMES_AT, 0)
    close(fd)
    if got < 0:
        raise OSError(-got, os.strerror(-got), path)
    sound = head_load(c_block, &head) == HEAD_SOUND
    sound += head_load(c_block + COPY_AT, &head) == HEAD_SOUND
    return sound, head.log_id, head.sequence, head.first


def has_index(str path not None, uint64_t salt) -> bool:
    """Whether a file ends with its segment's index. Raises OSError."""
    cdef Index index
    cdef int fd = opened(path)
    cdef bint found = index_read(&index, fd, salt) == 0
    close(fd)
    if found:
        index_free(&index)
    return found
