# Raw deflate without header or checksum, as the original speaks it.

from nsqc.wire.codec cimport Codec


cdef class Deflate(Codec):
    cdef object inflater, deflater      # of zlib
    cdef object rest                    # bytes that the inflater has not taken yet
    cdef bint more                      # it may have output without further input
    cdef char last[4]                   # of the bytes fed
    cdef bint begun
