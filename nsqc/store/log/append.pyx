"""Appends to a log on a thread. See the .pxd."""

from libc.errno cimport EEXIST, ENOENT, ENOMEM, EOVERFLOW, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset, strrchr
from posix.fcntl cimport O_DIRECTORY, O_RDONLY, O_RDWR
from posix.stat cimport mkdir
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read, io_sync_data, io_sync_path, io_truncate, io_write
from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.log.frame cimport MORE, MOST_OFFSET, Frame, frame_load, frames_latest, frames_seal, is_offset
from nsqc.store.log.idjournal cimport ids_free, ids_write
from nsqc.store.log.manifest cimport manifest_write
from nsqc.store.log.newfile cimport newfile_open, newfile_place
from nsqc.store.log.openfiles cimport close_counted, count_open, too_many_open
from nsqc.store.log.segmenthead cimport FRAMES_AT, segment_make, segment_path

cdef extern from *:
    """
    static const char nsqc_zeros[65536];
    """
    const char *nsqc_zeros

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void *to, size_t length, unsigned flags)

cdef enum:
    FIRST_PIECES = 2
    COPY_BYTES = 1048576        # of one read and write when a segment is copied
    ZERO_BYTES = 65536
    LEAST_READY = 16384         # bytes of frames below which a segment's file is not extended
    MOST_READY = 1048576        # most bytes to extend it by

cdef int64_t MARGIN = 1 << 39   # reserve more offsets when fewer are left


cdef void run_append(Job *c_job) noexcept nogil:
    cdef AppendJob *job = <AppendJob *> c_job
    cdef int64_t at = 0, length, records, offset = job.offset
    cdef bint fresh = job.fresh
    cdef Piece *piece
    # Only a hostile file brings a log that far.
    job.error = 0 if is_offset(job.offset + job.records) else EOVERFLOW
    if job.error == 0 and job.makes_folder:
        job.error = make_folder(job)
    if job.error == 0:
        job.error = sync_earlier(job)
        job.earlier_failed = job.error != 0
    if job.error == 0 and job.ids.out.length:
        # First: after a kill, ids count only up to the end of the records.
        job.made_names = job.ids.position == 0
        job.error = ids_write(&job.ids, job.syncs)
    piece = add_piece(job, &job.last)
    while job.error == 0 and at < job.out.length:
        length = 0 if fresh else span(job, at, piece.position, &records)
        if length == 0:
            piece = begin_segment(job, piece, offset)
            fresh = False
            continue
        job.error = write_span(job, piece, at, length, offset)
        at += length
        offset += records
        piece.end = offset
    if job.error == 0:
        job.error = complete(job)
    if job.error:
        undo(job)
    elif too_many_open():
        append_close(job)


cdef int make_folder(AppendJob *job) noexcept nogil:
    return errno if mkdir(job.c_folder, 0o700) < 0 and errno != EEXIST else 0


cdef Piece *add_piece(AppendJob *job, const Piece *piece) noexcept nogil:
    """NULL, with job.error: no memory."""
    cdef Piece *grown
    cdef int64_t room
    if job.count == job.room:
        room = max(2 * job.room, <int64_t> FIRST_PIECES)
        grown = <Piece *> realloc(job.pieces, <size_t> room * sizeof(Piece))
        if grown is NULL:
            job.error = ENOMEM
            return NULL
        job.pieces = grown
        job.room = room
    job.pieces[job.count] = piece[0]
    job.count += 1
    return &job.pieces[job.count - 1]


cdef int64_t span(AppendJob *job, int64_t begin, int64_t position, int64_t *records) noexcept nogil:
    """Bytes of the whole batches that fit into a segment at a position, and their records; 0: it is full."""
    cdef int64_t at = begin, batch = begin, count = 0
    cdef Frame frame
    records[0] = 0
    while at < job.out.length:
        frame_load(job.out.c_data + at, &frame)
        at += frame.length
        count += frame.records
        if frame.flags & MORE and at < job.out.length:
            continue
        if position - FRAMES_AT + at - begin > job.max_file and (batch > begin or position > FRAMES_AT):
            break
        batch = at
        records[0] = count
    return batch - begin


cdef Piece *begin_segment(AppendJob *job, Piece *last, int64_t offset) noexcept nogil:
    """NULL, with job.error."""
    cdef Piece fresh
    memset(&fresh, 0, sizeof(fresh))
    append_close(job)
    fresh.fresh = True
    fresh.head.log_id = job.manifest.log_id
    fresh.head.sequence = max(last.head.sequence, job.manifest.newest) + 1
    if not is_offset(fresh.head.sequence):
        job.error = EOVERFLOW
        return NULL
    fresh.head.first = fresh.end = offset
    fresh.head.made_ns = job.wall_ns
    fresh.head.before_salt = last.head.salt
    fresh.head.before_position = last.position
    fresh.head.before_end = last.end
    fresh.head.before_records = last.head.before_records + last.end - last.head.first
    fresh.head.before_due_ns = last.due_ns
    fresh.head.before_time_ns = fresh.time_ns = last.time_ns
    fresh.head.durable_from = job.durable_from if job.durable_from else fresh.head.sequence
    fresh.position = FRAMES_AT
    if getrandom(&fresh.head.salt, sizeof(fresh.head.salt), 0) != sizeof(fresh.head.salt):
        job.error = errno
        return NULL
    job.fd = segment_make(job.c_folder, &fresh.head, job.syncs)
    if job.fd < 0:
        job.error = -job.fd
        job.fd = -1
        return NULL
    count_open(1)
    job.synced = job.ready = FRAMES_AT
    last = add_piece(job, &fresh)
    if last is NULL:
        remove_segment(job, offset)
    return last


cdef int write_span(AppendJob *job, Piece *piece, int64_t at, int64_t length, int64_t offset) noexcept nogil:
    """0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t written
    cdef int error
    if job.fd < 0:
        segment_path(c_path, job.c_folder, piece.head.first)
        job.fd = io_open(c_path, O_RDWR)
        if job.fd < 0:
            error = -job.fd
            job.fd = -1
            return error
        count_open(1)
    frames_seal(job.out.c_data + at, length, piece.head.salt, piece.position, offset, job.synced)
    error = io_write(job.fd, job.out.c_data + at, length, piece.position, &written)
    if error == 0 and job.syncs:
        if piece.position + length > job.ready:
            make_ready(job, piece.position + length)
        error = io_sync_data(job.fd)
    if error:
        return error
    frames_latest(job.out.c_data + at, length, &piece.time_ns, &piece.due_ns)
    piece.position += length
    piece.out_begin = at
    piece.out_end = at + length
    if job.syncs:
        job.synced = piece.position
    return 0


cdef void make_ready(AppendJob *job, int64_t position) noexcept nogil:
    """Doubles the file, up to a limit: syncs are faster after overwriting durable zeros than after growing the file."""
    cdef int64_t length = min(position - FRAMES_AT, <int64_t> MOST_READY, FRAMES_AT + job.max_file - position), written
    job.ready = position
    if position - FRAMES_AT < LEAST_READY:
        return
    while length > 0 and io_write(job.fd, nsqc_zeros, min(length, <int64_t> ZERO_BYTES), job.ready, &written) == 0:
        job.ready += written
        length -= written


cdef int complete(AppendJob *job) noexcept nogil:
    """Updates the manifest for the new segments and offsets, and for the first write since a stop or a start, and syncs
    names. 0 or errno."""
    cdef Piece *last = &job.pieces[job.count - 1]
    cdef bint begun = last.fresh, reserves = job.offset + job.records > job.manifest.reserved - MARGIN
    cdef int error = 0
    if begun or reserves or job.manifest.end_size:
        job.manifest.end_size = 0
        if begun:
            job.manifest.newest = last.head.sequence
            job.manifest.newest_first = last.head.first
            job.manifest.newest_salt = last.head.salt
        if reserves:
            job.manifest.reserved = min(max(job.manifest.reserved, job.offset) + RESERVE, MOST_OFFSET)
        error = manifest_write(job.c_folder, &job.manifest)
        job.made_names = True
    if error == 0 and (job.syncs and (job.made_names or job.syncs_names or job.syncs_parent) or reserves):
        error = sync_folders(job)
    return error


cdef int sync_folders(AppendJob *job) noexcept nogil:
    """Syncs the names in the folder, and its own, even those made by others; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef char *c_slash
    cdef int error = io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    if error == 0 and job.syncs_parent:
        snprintf(c_path, PATH_BYTES, "%s", job.c_folder)
        c_slash = strrchr(c_path, c"/")
        c_slash[0 if c_slash != c_path else 1] = 0
        error = io_sync_path(c_path, O_RDONLY | O_DIRECTORY)
    if error == 0:
        job.made_names = False
        job.synced_names = True
    return error


cdef void remove_segment(AppendJob *job, int64_t first) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    segment_path(c_path, job.c_folder, first)
    unlink(c_path)


cdef void undo(AppendJob *job) noexcept nogil:
    """Removes the written data, as far as the disk allows. The next append begins a segment, whose header says where
    the data before it ends; after a kill until then, what is left here would count."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t index
    append_close(job)
    if job.last.head.sequence and not job.fresh:
        segment_path(c_path, job.c_folder, job.last.head.first)
        job.fd = io_open(c_path, O_RDWR)
        if job.fd >= 0:
            io_truncate(job.fd, job.last.position)
            close(job.fd)
        job.fd = -1
    for index in range(job.count):
        if job.pieces[index].fresh:
            remove_segment(job, job.pieces[index].head.first)
    job.count = 0


cdef void append_close(AppendJob *job) noexcept nogil:
    close_counted(&job.fd)


cdef void append_free(AppendJob *job) noexcept nogil:
    ids_free(&job.ids)
    buffer_free(&job.out)
    free(job.pieces)
    free(job.earlier)
    free(job)


# ---------------------------------------------------------------------- syncs of earlier appends

cdef int sync_earlier(AppendJob *job) noexcept nogil:
    """Syncs earlier data that was written without a sync; 0 or errno."""
    cdef char c_path[PATH_BYTES]
    cdef int64_t index
    cdef int error = 0
    for index in range(job.earlier_count):
        segment_path(c_path, job.c_folder, job.earlier[index])
        error = copy_again(job, c_path) if job.rewrites else io_sync_path(c_path, O_RDONLY)
        if error and error != ENOENT:       # retention removed it
            return error
    if job.earlier_count and job.rewrites:
        append_close(job)       # copies now have these names
        return io_sync_path(job.c_folder, O_RDONLY | O_DIRECTORY)
    return 0


cdef int copy_again(AppendJob *job, const char *c_path) noexcept nogil:
    """Replaces a segment by a copy: after a failed sync, the kernel may consider the old one clean. 0 or errno."""
    cdef char c_temporary[PATH_BYTES]
    cdef int64_t at = 0, got = 1, written
    cdef char *c_data
    cdef int error = 0, to, source = io_open(c_path, O_RDONLY)
    if source < 0:
        return -source
    snprintf(c_temporary, PATH_BYTES, "%s/next.tmp", job.c_folder)
    to = newfile_open(c_temporary)
    c_data = <char *> malloc(COPY_BYTES)
    if to < 0 or c_data is NULL:
        error = -to if to < 0 else ENOMEM
    while error == 0 and got > 0:
        got = io_read(source, c_data, COPY_BYTES, at)
        error = <int> -got if got < 0 else io_write(to, c_data, got, at, &written)
        at += max(got, <int64_t> 0)
    if error == 0:
        error = io_sync_data(to)
    if error == 0:
        error = newfile_place(c_temporary, c_path)
    free(c_data)
    close(source)
    if to >= 0:
        close(to)
    if error and to >= 0:
        unlink(c_temporary)
    return error
