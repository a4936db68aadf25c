"""Names of snapshots and journals. See the .pxd."""

from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, qsort, realloc, strtoll
from libc.string cimport memcpy, memmove, memset, strcmp, strncmp
from posix.fcntl cimport O_NONBLOCK, O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read
from nsqc.store.log.journal cimport journal_head_sound
from nsqc.store.log.ops cimport JOURNAL_HEAD_BYTES

cdef const char *NAME_PREFIX = b"cursors."
cdef int64_t MOST_NUMBER = 999_999_999_999_999_999
# A log that begins a journal each second comes to this in thirty years, and has as much room again.
cdef int64_t FARTHEST = 1_073_741_824

cdef enum:
    PREFIX_BYTES = 8
    FIRST_FILES = 8
    FARTHEST_NEXT = 64          # from one number to the next, however many files are lost between them


# ---------------------------------------------------------------------- names

cdef const char *ending_of(int kind) noexcept nogil:
    return b"journal" if kind == JOURNAL else b"snapshot" if kind == SNAPSHOT else b"snapshot.tmp"


cdef void name_write(char *c_to, size_t room, CursorFile *file) noexcept nogil:
    snprintf(c_to, room, "%s%06lld.%s", NAME_PREFIX, <long long> file.number, ending_of(file.kind))


cdef void cursor_path(char *c_path, const char *c_folder, CursorFile *file) noexcept nogil:
    cdef char[64] name
    name_write(name, sizeof(name), file)
    snprintf(c_path, PATH_BYTES, "%s/%s", c_folder, name)


cdef object file_name(CursorFile *file):
    cdef char[64] name
    name_write(name, sizeof(name), file)
    return (<bytes> name).decode()


cdef bint name_parsed(const char *c_name, CursorFile *file) noexcept nogil:
    cdef char *c_end
    cdef char[64] written
    cdef int kind
    if strncmp(c_name, NAME_PREFIX, PREFIX_BYTES) != 0:
        return False
    file.damaged = False
    file.number = strtoll(c_name + PREFIX_BYTES, &c_end, 10)
    if not 0 < file.number <= MOST_NUMBER:
        return False
    for kind in range(JOURNAL, TEMPORARY + 1):
        # Written out again: digits might be fewer, or more.
        file.kind = kind
        name_write(written, sizeof(written), file)
        if strcmp(c_name, written) == 0:
            return True
    return False


cdef int by_number(const void *c_left, const void *c_right) noexcept nogil:
    cdef const CursorFile *left = <const CursorFile *> c_left
    cdef const CursorFile *right = <const CursorFile *> c_right
    if left.number != right.number:
        return -1 if left.number < right.number else 1
    return right.kind - left.kind


# ---------------------------------------------------------------------- the listing

cdef int listing_add(Listing *listing, const char *c_name) noexcept nogil:
    cdef CursorFile file
    cdef CursorFile *files
    cdef int64_t room
    if not name_parsed(c_name, &file):
        return 0
    if listing.count == listing.room:
        room = max(<int64_t> FIRST_FILES, 2 * listing.room)
        files = <CursorFile *> realloc(listing.files, room * sizeof(CursorFile))
        if files is NULL:
            return ENOMEM
        listing.files = files
        listing.room = room
    listing.files[listing.count] = file
    listing.count += 1
    return 0


cdef int listing_end(Listing *listing, const char *c_folder) noexcept nogil:
    cdef CursorFile *files = listing.files
    cdef CursorFile *strays
    cdef int64_t first = 0, end = 0, kept = 0
    if listing.count == 0:
        return 0
    qsort(files, listing.count, sizeof(CursorFile), by_number)
    # As a rule all of them follow each other.
    if files[0].number <= FARTHEST and run_end(listing, 0) == listing.count:
        return 0
    strays = <CursorFile *> malloc(<size_t> listing.count * sizeof(CursorFile))
    if strays is NULL:
        return ENOMEM
    while first < listing.count:
        end = run_end(listing, first)
        if files[first].number <= FARTHEST and (kept == 0 or any_sound(files, first, end, c_folder)):
            memmove(files + kept, files + first, <size_t> (end - first) * sizeof(CursorFile))
            kept += end - first
        else:
            memcpy(strays + listing.strays, files + first, <size_t> (end - first) * sizeof(CursorFile))
            listing.strays += end - first
        first = end
    memcpy(files + kept, strays, <size_t> listing.strays * sizeof(CursorFile))
    free(strays)
    listing.count = kept
    return 0


cdef int64_t run_end(Listing *listing, int64_t first) noexcept nogil:
    """Behind the files whose numbers follow each other from one on."""
    cdef int64_t end = first + 1
    while (end < listing.count
           and listing.files[end].number - listing.files[end - 1].number <= FARTHEST_NEXT):
        end += 1
    return end


cdef bint any_sound(CursorFile *files, int64_t first, int64_t end, const char *c_folder) noexcept nogil:
    """Whether any of them begins as a journal of its number does."""
    cdef char[PATH_BYTES] c_path
    cdef char[JOURNAL_HEAD_BYTES] head
    cdef int64_t index
    cdef bint sound = False
    cdef int fd
    for index in range(first, end):
        cursor_path(c_path, c_folder, &files[index])
        fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
        if fd >= 0:
            sound = (io_read(fd, head, JOURNAL_HEAD_BYTES, 0) == JOURNAL_HEAD_BYTES
                     and journal_head_sound(head, <uint32_t> files[index].number))
            close(fd)
        if sound:
            return True
    return False


cdef int listing_read(Listing *listing, const char *c_folder) noexcept nogil:
    cdef dirent_t *entry
    cdef int error = 0
    cdef DIR *folder = opendir(c_folder)
    memset(listing, 0, sizeof(Listing))
    if folder is NULL:
        return errno
    while not error:
        entry = nsqc_next_entry(folder, &error)
        if entry is NULL:
            break
        if strncmp(entry.d_name, NAME_PREFIX, PREFIX_BYTES) == 0 and nsqc_leads_to_file(folder, entry):
            error = listing_add(listing, entry.d_name)
    closedir(folder)
    return error or listing_end(listing, c_folder)


cdef void listing_free(Listing *listing) noexcept nogil:
    free(listing.files)
    memset(listing, 0, sizeof(Listing))
