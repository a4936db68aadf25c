"""The manifest of a log. See the .pxd."""

from libc.errno cimport EISDIR, ELOOP, ENXIO, ESPIPE
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memset
from posix.fcntl cimport O_NONBLOCK, O_RDONLY
from posix.unistd cimport close

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read
from nsqc.store.log.frame cimport MOST_OFFSET, is_offset
from nsqc.store.log.newfile cimport newfile_make
from nsqc.store.log.segmenthead cimport (FRAMES_AT, HEAD_DAMAGED, HEAD_ROOM, HEAD_SOUND, HeadCheck, numbers_load,
                                         numbers_store)

cdef const char *MANIFEST_MAGIC = b"NSQCMAN\n"


cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_data[HEAD_ROOM]
    cdef int64_t got
    cdef int fd
    memset(manifest, 0, sizeof(Manifest))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd == -ELOOP or fd == -ENXIO:
        return HEAD_DAMAGED
    if fd < 0:
        return fd
    got = io_read(fd, c_data, HEAD_ROOM, 0)
    close(fd)
    if got == -EISDIR or got == -ESPIPE:
        return HEAD_DAMAGED     # not a file: the next manifest replaces it
    return <int> got if got < 0 else manifest_load(c_data, got, manifest)


cdef HeadCheck manifest_load(const char *c_data, int64_t length, Manifest *manifest) noexcept nogil:
    cdef HeadCheck answer = HEAD_DAMAGED
    if length >= HEAD_ROOM:
        answer = numbers_load(c_data, MANIFEST_MAGIC, manifest, sizeof(Manifest))
    if answer == HEAD_SOUND and not (
            is_offset(manifest.newest) and is_offset(manifest.newest_first) and is_offset(manifest.reserved)
            and is_offset(manifest.resume) and has_end(manifest)):
        answer = HEAD_DAMAGED
    if answer != HEAD_SOUND:
        memset(manifest, 0, sizeof(Manifest))
    return answer


cdef bint has_end(const Manifest *manifest) noexcept nogil:
    """Whether the end of a segment is possible."""
    return (is_offset(manifest.end_position) and is_offset(manifest.end)
            and manifest.end_due_ns >= 0 and manifest.end_time_ns >= 0
            and (manifest.end_size == 0 or FRAMES_AT <= manifest.end_position <= manifest.end_size <= MOST_OFFSET))


cdef int manifest_write(const char *c_folder, const Manifest *manifest) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_data[HEAD_ROOM]
    cdef int fd
    numbers_store(c_data, MANIFEST_MAGIC, manifest, sizeof(Manifest))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    snprintf(c_temporary, PATH_BYTES, "%s/manifest.tmp", c_folder)
    fd = newfile_make(c_temporary, c_path, c_data, HEAD_ROOM, True)
    if fd < 0:
        return -fd
    close(fd)
    return 0
