# Snappy's framing format: chunks of type 1, length 3 (little-endian), data.
#
#   ff      stream identifier: begins the stream, may be repeated
#   00      masked crc32c 4, a compressed block of up to 64 KiB when decoded
#   01      masked crc32c 4, up to 64 KiB plain bytes
#   80-fe   ignored, of any length
#   02-7f   refused

from nsqc.wire.codec cimport Codec


cdef class Snappy(Codec):
    cdef bint greeted           # the stream identifier was received
    cdef bint introduced        # ours was sent
    cdef Py_ssize_t skipping    # bytes left of a chunk that is ignored

    cdef Py_ssize_t _chunk(self, int kind, Py_ssize_t length, char *c_to, Py_ssize_t room) except -2
