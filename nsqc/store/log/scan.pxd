# What counts of a segment whose end nobody has recorded: after a kill or a power failure.
#
# Valid frames count, whatever lies between them: that was damaged later. The last batch counts if all its parts are
# there. Only a power failure may leave a hole where bytes were never durable: then what follows the first hole
# after the highest `synced` does not count, as it never was acknowledged as durable.

from libc.stdint cimport int64_t

from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.index cimport Index
from nsqc.store.log.segmenthead cimport SegmentHead

cdef enum:
    LEFT_BYTES = 24             # a delay that was left: offset, due time, milliseconds asked for


cdef struct Scanned:
    int64_t position, end       # where what counts ends; the offset after its last record
    int64_t synced              # the highest of its frames
    int64_t damaged             # records before the end that are lost
    int64_t due_ns              # the latest due time of its delayed records; 0: it has none
    Index index                 # owned by the caller
    Buffer delays               # LEFT_BYTES for each delayed record with a due time after `now`; owned by the caller

# size: of the file. 0 or errno.
cdef int segment_scan(int fd, const SegmentHead *head, int64_t size, bint power_failed, int64_t now_ns,
                      Scanned *found) noexcept nogil
# Only the delays of a segment that ends at a position.
cdef int segment_delays(int fd, const SegmentHead *head, int64_t limit, int64_t now_ns, Buffer *delays) noexcept nogil
