# Where the records of a segment go on behind damage, where no index entry says so: entries are damaged as well. They
# are searched by the rules for damaged files (segment.pxd), and keep their offsets if these can be told.

from libc.stdint cimport int64_t
from nsqc.store.disk.segment cimport Window


cdef struct Torn:
    # Offsets whose entries are damaged, from a damaged record on. Zeros: none.
    int64_t begin, end
    int64_t at              # where the record of the offset end lies, or the records end
    int64_t lost            # of these records, how many are still to be passed by


cdef inline bint is_torn(const Torn *torn, int64_t offset) noexcept nogil:
    return torn.begin <= offset < torn.end

cdef void window_open(Window *window) noexcept nogil        # window_free() closes it
# Looks for the record of an offset at a position. 1: it begins there, and has this length. 0: damage; then offset and
# position are those of the next one. -errno: it cannot be read. first, next: the offsets of the segment's first record
# and behind its last one; size: the bytes of its records. torn is for calls with this and later offsets.
cdef int resume(Torn *torn, int idx, int dat, int64_t first, int64_t next, int64_t size, Window *window,
                int64_t *offset, int64_t *position, int64_t *length) noexcept nogil
