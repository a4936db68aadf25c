# Raw deflate without header and checksum, as in nsqd.

from nsqc.wire.codec cimport Codec
from nsqc.wire.inbuf cimport InBuf

cdef enum:
    # Flushes up to this size are stored, not compressed. Netty inflates one read to at most twice the bytes read, and a
    # client whose pipeline does not assemble frames, such as JavaNSQClient, mistakes that for a whole frame. The first
    # read is 1024 bytes, ten of which a stored flush needs. And a packet is a packet, compressed or not.
    STORED_BYTES = 1014


cdef class Deflate(Codec):
    cdef object inflater                # of zlib
    cdef object deflater                # of zlib or ISA-L, 100 to 200 KB; None until a flush is compressed
    cdef int level
    cdef InBuf unseen                   # owned; the tail of the data stored since the deflater was last used
    cdef object rest                    # input not yet consumed by the inflater
    cdef bint more                      # the inflater may return more without new input
    cdef char last[4]                   # last bytes of the input
    cdef bint begun

    cdef bytes _stored(self, const char *c_from, Py_ssize_t length)
    cdef int _catch_up(self) except -1
