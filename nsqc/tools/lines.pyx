"""Formats bodies of a batch as lines, in one piece of memory."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from nsqc.client.chunk cimport Chunk

cdef extern from "<malloc.h>" nogil:
    enum:
        M_TRIM_THRESHOLD
        M_MMAP_THRESHOLD
    int mallopt(int parameter, int value)

cdef enum:
    MIB = 1 << 20


def keep_memory() -> None:
    """Makes freed memory stay with the process, up to 128 MiB. Batches come and go, and getting their pages from the
    system each time would take a third of a tool's processor time."""
    mallopt(M_MMAP_THRESHOLD, 32 * MIB)
    mallopt(M_TRIM_THRESHOLD, 128 * MIB)


def lines(Chunk bodies not None, Chunk offsets not None, Py_ssize_t start, Py_ssize_t stop, bytes prefix not None,
          bytes suffix not None) -> bytes:
    """prefix, body and suffix of the messages from start to stop, concatenated. bodies, offsets: of a Batch.
    Raises IndexError for rows outside of it."""
    cdef const int32_t *c_offsets = <const int32_t *> offsets.c_data
    cdef Py_ssize_t c_prefix = len(prefix), c_suffix = len(suffix), row, size
    cdef const char *c_before = prefix
    cdef const char *c_after = suffix
    cdef const char *c_from = bodies.c_data
    cdef char *c_to
    cdef bytes text
    if not 0 <= start <= stop < offsets.length // 4:
        raise IndexError(stop)
    text = PyBytes_FromStringAndSize(NULL, c_offsets[stop] - c_offsets[start] + (stop - start) * (c_prefix + c_suffix))
    c_to = PyBytes_AS_STRING(text)
    with nogil:     # another thread receives meanwhile
        for row in range(start, stop):
            size = c_offsets[row + 1] - c_offsets[row]
            memcpy(c_to, c_before, <size_t> c_prefix)
            memcpy(c_to + c_prefix, c_from + c_offsets[row], <size_t> size)
            memcpy(c_to + c_prefix + size, c_after, <size_t> c_suffix)
            c_to += c_prefix + size + c_suffix
    return text
