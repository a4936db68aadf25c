# File names of a disk queue; only this module builds and parses them. A queue is TOPIC or TOPIC:CHANNEL.
#
#   QUEUE.diskqueue.NNNNNN.dat              messages; the number has 6 to 17 digits
#   QUEUE.diskqueue.meta.dat                positions
#   QUEUE.diskqueue.meta.dat.PID-N.tmp      positions being written
#   QUEUE.diskqueue.X.dat.retired-PID-N     removal started by an earlier version

from libc.stdint cimport int64_t

cdef enum:
    PATH_BYTES = 4500           # longest path of a data file, terminator included
    MAX_NUMBER_BYTES = 24       # of that, for the part after the prefix

# The path of a data file. c_prefix: prefix_of() its queue; c_path: room for PATH_BYTES.
cdef void path_store(char *c_path, const char *c_prefix, int64_t number) noexcept nogil
