# Raw deflate without header or checksum, as the original speaks it.

from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf

cdef enum:
    # Up to here a flush is stored, not packed. A client of netty's takes what it inflates from one read, at most twice
    # the bytes read, for a whole frame if its pipeline has nothing that puts frames together, as JavaNSQClient's. It
    # reads 1024 bytes at first, of which a stored flush takes ten; and one packet is one packet, packed or not.
    STORED_BYTES = 1014


cdef class Deflate(Codec):
    cdef object inflater                # of zlib
    cdef object deflater                # of zlib or ISA-L, 100 to 200 KB; None until a flush is packed
    cdef int level
    cdef InBuf unseen                   # owned; what was stored since the deflater has packed something, the end of it
    cdef object rest                    # bytes that the inflater has not taken yet
    cdef bint more                      # it may have output without further input
    cdef char last[4]                   # of the bytes fed
    cdef bint begun

    cdef bytes _stored(self, const char *c_from, Py_ssize_t length)
    cdef int _catch_up(self) except -1
