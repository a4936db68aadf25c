"""Appends to segments and journals, without the GIL. See the .pxd."""

from libc.errno cimport EEXIST, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc, strtoll
from libc.string cimport memcpy, memset, strcmp, strrchr
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY
from posix.stat cimport mkdir
from posix.unistd cimport close, unlink

from nsqc.store.disk.pool cimport Part, part_begin, part_end
from nsqc.store.disk.segment cimport RECORD_ATTEMPTS_AT, RECORD_TIMESTAMP_AT
from nsqc.store.disk.syscalls cimport (io_open, io_read, io_size, io_sync_data, io_sync_path,
                                       io_truncate, io_write)
from nsqc.store.log.format cimport (DUE_BYTES, ENTRY_BYTES, INDEX_HEAD_BYTES, MOST_SEGMENT, TIME_SHIFT, IndexEntry,
                                    IndexHead, entry_store, head_store)
from nsqc.store.log.listing cimport DIR, closedir, dirent_t, nsqc_next_entry, opendir
from nsqc.store.log.openfiles cimport waits_open
from nsqc.store.log.ops cimport JOURNAL_HEAD_BYTES
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_u16

cdef enum:
    FIRST_ROOM = 4096
    REWRITE_BYTES = 1048576     # of one read and write when data is written again
    # Segments whose names may be lost: they, and the one before, have at most 2^31 bytes of records of 30 or more each,
    # so together fewer than recovery.py's JUMP.
    MOST_UNNAMED = 16
    DIGITS = 20                 # of an offset in a name

cdef int64_t MOST_FALL_NS = 366 * 86_400 * 1_000_000_000
cdef const char *JOURNAL_MAGIC = b"NSQCJNL1"
cdef long allocated = 0         # buffers and blocks of logs that exist now

cdef extern from *:
    """
    #define NSQC_ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)
    """
    void NSQC_ADD(long counter, long n) nogil


# ---------------------------------------------------------------------- buffers

cdef int buf_room(LogBuf *buf, int64_t need) noexcept nogil:
    cdef int64_t room = buf.length + need
    cdef char *c_grown
    if room <= buf.room:
        return 0
    room = max(room, 2 * buf.room, <int64_t> FIRST_ROOM)
    c_grown = <char *> realloc(buf.c_data, <size_t> room)
    if c_grown is NULL:
        return -1
    NSQC_ADD(allocated, buf.c_data is NULL)
    buf.c_data = c_grown
    buf.room = room
    return 0


cdef void buf_free(LogBuf *buf) noexcept nogil:
    NSQC_ADD(allocated, -(buf.c_data is not NULL))
    free(buf.c_data)
    memset(buf, 0, sizeof(buf[0]))


# ---------------------------------------------------------------------- appending

cdef inline int64_t record_bytes(const char *c_record) noexcept nogil:
    return SIZE_BYTES + <int64_t> load_i32(c_record)


cdef void segment_path(char *c_path, const char *c_folder, int64_t first, const char *c_kind) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s/%020lld.%s", c_folder, <long long> first, c_kind)


cdef int64_t batch_bytes(LogBuf *out, int64_t at, int64_t *records) noexcept nogil:
    """Bytes of the batch that begins here: records are chained by their marks."""
    cdef int64_t begin = at
    cdef bint more = True
    records[0] = 0
    while more:
        more = load_u16(out.c_data + at + RECORD_ATTEMPTS_AT) == MORE_MARK
        at += record_bytes(out.c_data + at)
        records[0] += 1
    return at - begin


cdef Piece *new_piece(AppendJob *job, Piece *piece) noexcept nogil:
    cdef Piece *grown
    if job.count == job.room:
        grown = <Piece *> realloc(job.pieces, <size_t> (job.room + 4) * sizeof(Piece))
        if grown is NULL:
            return NULL
        job.pieces = grown
        job.room += 4
    job.pieces[job.count] = piece[0]
    job.count += 1
    return &job.pieces[job.count - 1]


cdef void run_append(Job *c_job) noexcept nogil:
    cdef AppendJob *job = <AppendJob *> c_job
    cdef Piece *piece
    cdef Piece following
    cdef int64_t at = 0, begin, size, records, span, offset = job.offset, due_at = 0
    cdef int64_t least_ns = job.least_ns
    cdef bint fresh = job.fresh
    if job.left_end:
        job.error = remove_left(job)
        if job.error:
            job.leaves = True
            close_files(job)
            return
    job.error = sync_behind(job)
    if job.error:
        job.behind_failed = True
        close_files(job)
        return
    piece = new_piece(job, &job.last)
    if piece is NULL:
        job.error = ENOMEM
        return
    while at < job.out.length:
        begin = at
        span = 0
        while at < job.out.length:
            size = batch_bytes(&job.out, at, &records)
            if piece.bytes + at - begin > 0 and piece.bytes + at - begin + size > job.max_file:
                break
            at += size
            span += records
        if at > begin:
            if fresh:
                piece.base_ns = load_i64(job.out.c_data + begin + RECORD_TIMESTAMP_AT)
                # Times in indexes do not fall, from one segment to the next either, even if the clock has. A larger
                # fall is damage in the index before this one.
                if 0 < least_ns - piece.base_ns < MOST_FALL_NS:
                    piece.base_ns = least_ns
            job.error = write_span(job, piece, job.out.c_data + begin, at - begin, offset, span, fresh, &due_at)
            if job.error:
                break
            offset += span
        if at < job.out.length:
            close_files(job)
            job.unsynced = 0 if job.syncs else job.unsynced + fresh
            least_ns = piece.base_ns + ((<int64_t> piece.time) << TIME_SHIFT)
            memset(&following, 0, sizeof(following))
            following.first = offset
            piece = new_piece(job, &following)
            if piece is NULL:
                job.error = ENOMEM
                break
            fresh = True
    if job.error:
        undo(job)
    elif job.opens and job.c_entries is NULL:
        job.waits = waits_open(2)
        if not job.waits:
            close_files(job)


cdef void close_files(AppendJob *job) noexcept nogil:
    if job.dat >= 0:
        close(job.dat)
    if job.idx >= 0:
        close(job.idx)
    job.dat = job.idx = -1


cdef int make_folder(const char *c_folder, uint64_t id) noexcept nogil:
    """Makes the folder of a log, with the name that says which one it is; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int fd
    if mkdir(c_folder, 0o700) < 0 and errno != EEXIST:
        return errno
    snprintf(c_path, PATH_BYTES, "%s/id.%016llx", c_folder, <unsigned long long> id)
    fd = io_open(c_path, O_WRONLY | O_CREAT)
    if fd < 0:
        return -fd
    close(fd)
    return 0


cdef int open_files(AppendJob *job, Piece *piece, bint fresh) noexcept nogil:
    """Opens or creates the files of a segment; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int flags = O_RDWR | O_CREAT | O_TRUNC if fresh else O_RDWR
    cdef int error
    if job.makes_folder:
        error = make_folder(job.c_folder, job.id)
        if error:
            return error
    if job.dat < 0:
        segment_path(c_path, job.c_folder, piece.first, b"dat")
        job.dat = io_open(c_path, flags)
        if job.dat < 0:
            return -job.dat
    if job.idx < 0:
        segment_path(c_path, job.c_folder, piece.first, b"idx")
        job.idx = io_open(c_path, flags)
        if job.idx < 0:
            return -job.idx
    return 0


cdef int sync_folders(AppendJob *job) noexcept nogil:
    """Names in the folder are durable, and its own, whoever has made it; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef char *c_slash
    cdef int error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    if error == 0 and job.syncs_parent:
        snprintf(c_path, PATH_BYTES, "%s", job.c_folder)
        c_slash = strrchr(c_path, c"/")
        c_slash[0 if c_slash != c_path else 1] = 0
        error = io_sync_path(c_path, O_RDONLY | O_DIRECTORY)
    if error == 0:
        job.syncs_parent = job.syncs_names = job.made_names = False
        job.synced_names = True
    return error


cdef int write_span(AppendJob *job, Piece *piece, char *c_from, int64_t length, int64_t offset, int64_t records,
                    bint fresh, int64_t *due_at) noexcept nogil:
    """Writes records to a segment, with due times and index entries; 0 or errno."""
    cdef int64_t head = INDEX_HEAD_BYTES if fresh else 0
    cdef int64_t written, due_begin = due_at[0], due_offset, index_at
    cdef uint32_t time = piece.time
    cdef char *c_index
    cdef IndexHead index_head
    cdef int error
    if piece.bytes + length > MOST_SEGMENT:
        return EIO
    error = open_files(job, piece, fresh)
    if error:
        return error
    c_index = <char *> malloc(<size_t> (head + records * ENTRY_BYTES))
    if c_index is NULL:
        return ENOMEM
    if fresh:
        index_head.first = piece.first
        index_head.base_ns = piece.base_ns
        index_head.unsynced = <uint32_t> (job.unsynced + 1)
        head_store(c_index, &index_head)
    make_entries(c_index + head, c_from, piece.bytes, offset, records, piece.base_ns, &time)
    while due_at[0] < job.due.length:
        due_offset = load_i64(job.due.c_data + due_at[0])
        if due_offset >= offset + records:
            break
        due_at[0] += DUE_BYTES
    if due_at[0] > due_begin:
        error = write_due(job, piece, job.due.c_data + due_begin, due_at[0] - due_begin)
        job.made_names = job.made_names or piece.due_bytes == 0
    if error == 0 and fresh:
        # First: a segment whose index has a head is one whose index was not lost, so records without entries are what a
        # kill has left of a batch.
        error = io_write(job.idx, c_index, head, 0, &written)
    if error == 0:
        error = io_write(job.dat, c_from, length, piece.bytes, &written)
    index_at = 0 if fresh else INDEX_HEAD_BYTES + piece.records * ENTRY_BYTES
    if error == 0 and job.puts_off:
        job.c_entries = c_index
        job.entries_length = records * ENTRY_BYTES
        job.entries_at = index_at
        c_index = NULL
    elif error == 0:
        error = io_write(job.idx, c_index, head + records * ENTRY_BYTES, index_at, &written)
    free(c_index)
    if error == 0 and job.syncs:
        error = sync_files(job)
        if error:
            # What the kernel has of these files may be clean in memory only: nothing is appended to them any more.
            job.spoilt = True
    job.made_names = job.made_names or fresh
    if error == 0 and (job.syncs and (job.made_names or job.syncs_names or job.syncs_parent)
                       or fresh and (job.count == 1 or job.unsynced >= MOST_UNNAMED)):
        # Names say which offsets were used. If a power failure takes the last of those that only continue the numbers
        # of the one before, numbering goes on behind any that their segments can have had.
        error = sync_folders(job)
    if error == 0:
        job.makes_folder = False
        piece.bytes += length
        piece.records += records
        piece.due_bytes += due_at[0] - due_begin
        piece.time = time
    return error


cdef struct SyncPart:
    Part part
    int fd
    int error


cdef void sync_part(Part *c_part) noexcept nogil:
    cdef SyncPart *part = <SyncPart *> c_part
    part.error = io_sync_data(part.fd)


cdef int sync_files(AppendJob *job) noexcept nogil:
    """Both at a time, so that they share what the file system and the disk have to do; one after the other takes a
    third longer. 0 or errno."""
    cdef SyncPart index
    cdef int error
    index.part.run = sync_part
    index.fd = job.idx
    part_begin(&job.job, &index.part)
    error = io_sync_data(job.dat)
    part_end(&job.job, &index.part)
    return error if error else index.error


cdef int run_entries(AppendJob *job) noexcept nogil:
    cdef int64_t written
    cdef int error = io_write(job.idx, job.c_entries, job.entries_length, job.entries_at, &written)
    free(job.c_entries)
    job.c_entries = NULL
    if error:
        undo(job)
    return error


cdef int sync_behind(AppendJob *job) noexcept nogil:
    """What was written before without being synced is on disk; 0 or errno."""
    cdef int64_t index
    cdef int error = 0
    for index in range(job.behind_count):
        if error == 0:
            error = sync_again(job, job.behind[index], b"dat")
        if error == 0:
            error = sync_again(job, job.behind[index], b"idx")
        if error == 0:
            error = sync_again(job, job.behind[index], b"due")
    return error


cdef int sync_again(AppendJob *job, int64_t first, const char *c_kind) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int error
    segment_path(c_path, job.c_folder, first, c_kind)
    error = rewrite(c_path) if job.rewrites else 0
    if error == 0:
        error = io_sync_path(c_path, O_RDONLY)
    return 0 if error == ENOENT else error      # retention has removed it, or there are no due times


cdef int rewrite(const char *c_path) noexcept nogil:
    """Writes what a file has once more: after a sync that failed, the kernel may consider it clean. 0 or errno."""
    cdef int64_t at = 0, got = 0, size, written
    cdef char *c_data
    cdef int error = 0, fd = io_open(c_path, O_RDWR)
    if fd < 0:
        return -fd
    c_data = <char *> malloc(REWRITE_BYTES)
    size = io_size(fd)
    if c_data is NULL or size < 0:
        error = ENOMEM if c_data is NULL else <int> -size
    while error == 0 and at < size:
        got = io_read(fd, c_data, min(<int64_t> REWRITE_BYTES, size - at), at)
        if got <= 0:
            error = <int> -got
            break
        error = io_write(fd, c_data, got, at, &written)
        at += got
    free(c_data)
    close(fd)
    return error


cdef void make_entries(char *c_to, char *c_record, int64_t position, int64_t offset, int64_t records, int64_t base_ns,
                       uint32_t *time) noexcept nogil:
    """Takes the marks out of the records and makes their index entries."""
    cdef IndexEntry entry
    cdef int64_t index, size, since
    for index in range(records):
        size = record_bytes(c_record)
        entry.position = position
        entry.more = load_u16(c_record + RECORD_ATTEMPTS_AT) == MORE_MARK
        store_u16(c_record + RECORD_ATTEMPTS_AT, 0)
        since = (load_i64(c_record + RECORD_TIMESTAMP_AT) - base_ns) >> TIME_SHIFT
        if since > <int64_t> time[0]:
            time[0] = <uint32_t> min(since, <int64_t> 0xFFFFFFFF)
        entry.time = time[0]
        entry.crc = crc32c(<const unsigned char *> c_record, size)
        entry_store(c_to, offset + index, &entry)
        c_to += ENTRY_BYTES
        c_record += size
        position += size


cdef int write_due(AppendJob *job, Piece *piece, const char *c_from, int64_t length) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef int64_t written
    cdef int error, fd
    segment_path(c_path, job.c_folder, piece.first, b"due")
    fd = io_open(c_path, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    error = io_write(fd, c_from, length, piece.due_bytes, &written)
    if error == 0 and job.syncs:
        error = io_sync_data(fd)
    close(fd)
    return error


cdef void cut(const char *c_folder, int64_t first, const char *c_kind, int64_t size, AppendJob *job) noexcept nogil:
    """Makes a file as long as it was; without content it goes."""
    cdef char c_path[PATH_BYTES]
    cdef int fd
    segment_path(c_path, c_folder, first, c_kind)
    if size == 0:
        job.leaves = True
        if unlink(c_path) < 0 and errno != ENOENT:
            job.spoilt = True
        return
    fd = io_open(c_path, O_RDWR)
    if fd == -ENOENT:
        return
    if fd < 0 or io_truncate(fd, size):
        job.spoilt = True
    if fd >= 0:
        close(fd)


cdef void undo(AppendJob *job) noexcept nogil:
    """Nothing of it stays in the files, if the disk allows that."""
    cdef Piece *piece
    cdef int64_t index
    close_files(job)
    for index in range(job.count - 1, -1, -1):
        piece = &job.pieces[index]
        if index == 0:
            piece[0] = job.last
        else:
            piece.records = piece.bytes = piece.due_bytes = 0
        # The index first: without it, records do not count.
        cut(job.c_folder, piece.first, b"idx",
            INDEX_HEAD_BYTES + piece.records * ENTRY_BYTES if piece.records else 0, job)
        cut(job.c_folder, piece.first, b"dat", piece.bytes, job)
        if job.due.length:
            cut(job.c_folder, piece.first, b"due", piece.due_bytes, job)
    job.count = 0


cdef int remove_left(AppendJob *job) noexcept nogil:
    """Segments of writes that were refused go: the next start would take them for what follows. 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef dirent_t *entry
    cdef char *c_end
    cdef int64_t first
    cdef int error = 0
    cdef DIR *folder = opendir(job.c_folder)
    if folder is NULL:
        return 0 if errno == ENOENT else errno
    while error == 0:
        entry = nsqc_next_entry(folder, &error)
        if entry is NULL:
            break
        first = strtoll(entry.d_name, &c_end, 10)
        if (c_end - entry.d_name == DIGITS and entry.d_name[0] == c"0" and job.offset <= first < job.left_end
                and (strcmp(c_end, b".dat") == 0 or strcmp(c_end, b".idx") == 0 or strcmp(c_end, b".due") == 0)):
            snprintf(c_path, PATH_BYTES, "%s/%s", job.c_folder, entry.d_name)
            if unlink(c_path) < 0 and errno != ENOENT:
                error = errno
    closedir(folder)
    return error


# ---------------------------------------------------------------------- the journal

cdef void run_journal(Job *c_job) noexcept nogil:
    cdef JournalJob *job = <JournalJob *> c_job
    cdef char c_path[PATH_BYTES]
    cdef char head[JOURNAL_HEAD_BYTES]
    cdef int64_t written
    cdef bint opens = job.fd < 0
    job.error = 0
    if job.makes_folder:
        job.error = make_folder(job.c_folder, job.id)
        if job.error:
            return
    if job.fd < 0:
        snprintf(c_path, PATH_BYTES, "%s/cursors.%06lld.journal", job.c_folder, <long long> job.number)
        job.fd = io_open(c_path, O_RDWR | O_CREAT | (O_TRUNC if job.at == 0 else 0))
        if job.fd < 0:
            job.error = -job.fd
            job.fd = -1
            return
    if job.at == 0:
        memcpy(head, JOURNAL_MAGIC, 8)
        store_i32(head + 8, <int> job.number)
        store_i32(head + 12, <int> crc32c(<const unsigned char *> head, 12))
        job.error = io_write(job.fd, head, JOURNAL_HEAD_BYTES, 0, &written)
        if job.error:
            io_truncate(job.fd, 0)
            return
        job.at = JOURNAL_HEAD_BYTES
    job.error = io_write(job.fd, job.c_data, job.length, job.at, &written)
    if job.error:
        io_truncate(job.fd, job.at)
        return
    job.at += job.length
    if opens:
        job.waits = waits_open(1)
        if not job.waits:
            close(job.fd)
            job.fd = -1


def alive() -> int:
    """Buffers of logs that own memory now."""
    return allocated
