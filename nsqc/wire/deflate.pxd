# Raw deflate without header and checksum, as nsqd speaks it.

from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf

cdef enum:
    # Up to here a flush is stored, not compressed. Netty inflates one read to at most twice the bytes read, and a
    # client whose pipeline does not assemble frames, such as JavaNSQClient, takes that for a whole frame. The first
    # read is of 1024 bytes, ten of which a stored flush needs. And a packet is a packet, compressed or not.
    STORED_BYTES = 1014


cdef class Deflate(Codec):
    cdef object inflater                # of zlib
    cdef object deflater                # of zlib or ISA-L, 100 to 200 KB; None until a flush is compressed
    cdef int level
    cdef InBuf unseen                   # owned; the end of what was stored since the deflater was last used
    cdef object rest                    # input that the inflater has not taken yet
    cdef bint more                      # the inflater may return more without further input
    cdef char last[4]                   # bytes of the input
    cdef bint begun

    cdef bytes _stored(self, const char *c_from, Py_ssize_t length)
    cdef int _catch_up(self) except -1
