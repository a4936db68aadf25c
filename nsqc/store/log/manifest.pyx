"""The manifest of a log. See the .pxd."""

from libc.errno cimport EISDIR, ELOOP, ENXIO, ESPIPE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport O_NONBLOCK, O_RDONLY
from posix.unistd cimport close, unlink

from nsqc.store.disk.names cimport PATH_BYTES
from nsqc.store.disk.syscalls cimport io_open, io_read, io_sync_data, io_write
from nsqc.store.log.newfile cimport newfile_open, newfile_place
from nsqc.store.log.segmenthead cimport HEAD_DAMAGED, HEAD_SOUND, HEAD_UNKNOWN, SEGMENT_VERSION, HeadCheck
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32, store_i64

cdef const char *MANIFEST_MAGIC = b"NSQCMAN\n"

cdef enum:
    MANIFEST_BYTES = 128
    MAGIC_BYTES = 8
    CRC_AT = MANIFEST_BYTES - 4


cdef int manifest_read(const char *c_folder, Manifest *manifest) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_data[MANIFEST_BYTES]
    cdef int64_t got
    cdef int fd
    memset(manifest, 0, sizeof(Manifest))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    fd = io_open(c_path, O_RDONLY | O_NONBLOCK)
    if fd == -ELOOP or fd == -ENXIO:
        return HEAD_DAMAGED
    if fd < 0:
        return fd
    got = io_read(fd, c_data, MANIFEST_BYTES, 0)
    close(fd)
    if got == -EISDIR or got == -ESPIPE:
        return HEAD_DAMAGED     # not a file: it gives way to the next one
    return <int> got if got < 0 else manifest_load(c_data, got, manifest)


cdef HeadCheck manifest_load(const char *c_data, int64_t length, Manifest *manifest) noexcept nogil:
    if (length < MANIFEST_BYTES or memcmp(c_data, MANIFEST_MAGIC, MAGIC_BYTES)
            or <uint32_t> load_i32(c_data + CRC_AT) != crc32c(<const unsigned char *> c_data, CRC_AT)):
        return HEAD_DAMAGED
    if load_i32(c_data + 8) != SEGMENT_VERSION or load_i32(c_data + 12):
        return HEAD_UNKNOWN
    manifest.log_id = <uint64_t> load_i64(c_data + 16)
    manifest.newest = load_i64(c_data + 24)
    manifest.newest_first = load_i64(c_data + 32)
    manifest.newest_salt = <uint64_t> load_i64(c_data + 40)
    manifest.reserved = load_i64(c_data + 48)
    manifest.resume = load_i64(c_data + 56)
    manifest.end_size = load_i64(c_data + 64)
    manifest.end_position = load_i64(c_data + 72)
    manifest.end = load_i64(c_data + 80)
    manifest.end_due_ns = load_i64(c_data + 88)
    manifest.end_time_ns = load_i64(c_data + 96)
    return HEAD_SOUND


cdef int manifest_write(const char *c_folder, const Manifest *manifest) noexcept nogil:
    cdef char c_path[PATH_BYTES]
    cdef char c_temporary[PATH_BYTES]
    cdef char c_data[MANIFEST_BYTES]
    cdef int64_t written
    cdef int error, fd
    memset(c_data, 0, MANIFEST_BYTES)
    memcpy(c_data, MANIFEST_MAGIC, MAGIC_BYTES)
    store_i32(c_data + 8, SEGMENT_VERSION)
    store_i64(c_data + 16, <int64_t> manifest.log_id)
    store_i64(c_data + 24, manifest.newest)
    store_i64(c_data + 32, manifest.newest_first)
    store_i64(c_data + 40, <int64_t> manifest.newest_salt)
    store_i64(c_data + 48, manifest.reserved)
    store_i64(c_data + 56, manifest.resume)
    store_i64(c_data + 64, manifest.end_size)
    store_i64(c_data + 72, manifest.end_position)
    store_i64(c_data + 80, manifest.end)
    store_i64(c_data + 88, manifest.end_due_ns)
    store_i64(c_data + 96, manifest.end_time_ns)
    store_i32(c_data + CRC_AT, <int> crc32c(<const unsigned char *> c_data, CRC_AT))
    snprintf(c_path, PATH_BYTES, "%s/manifest", c_folder)
    snprintf(c_temporary, PATH_BYTES, "%s/manifest.tmp", c_folder)
    fd = newfile_open(c_temporary)
    if fd < 0:
        return -fd
    error = io_write(fd, c_data, MANIFEST_BYTES, 0, &written)
    if error == 0:
        error = io_sync_data(fd)
    close(fd)
    if error == 0:
        error = newfile_place(c_temporary, c_path)
    if error:
        unlink(c_temporary)
    return error
