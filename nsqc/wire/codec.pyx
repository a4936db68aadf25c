"""Shared by all codecs: undecoded input, and methods for Python."""

from nsqc.wire.inbuf cimport inbuf_append, inbuf_drop, inbuf_free


class CodecError(ValueError):
    """The peer's stream cannot be decoded; the text is sent to the peer."""


cdef class Codec:
    """Base of the codecs; subclasses implement decode, encode and cut_short."""

    def __dealloc__(self):
        inbuf_free(&self.fed)

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1:
        inbuf_drop(&self.fed, self.taken)
        self.taken = 0
        if inbuf_append(&self.fed, c_from, length) < 0:
            raise MemoryError
        return 0

    cdef void take(self, Py_ssize_t length) noexcept:
        self.taken += length
        if self.taken == self.fed.length:
            inbuf_free(&self.fed)
            self.taken = 0

    cdef Py_ssize_t decode(self, char *c_to) except -1:
        raise NotImplementedError

    cdef bytes encode(self, char *c_from, Py_ssize_t length):
        raise NotImplementedError

    cdef bint cut_short(self) noexcept:
        return False

    # ------------------------------------------------------------------ for Python

    def put(self, bytes data not None) -> None:
        """Feeds input."""
        self.feed(data, len(data))

    def get(self) -> bytes:
        """The next decoded bytes, at most 64 KiB; empty if more input is needed. Raises CodecError."""
        piece = bytearray(PIECE_BYTES)
        return bytes(piece[:self.decode(piece)])

    def pack(self, bytes data not None) -> bytes:
        """Encodes and flushes."""
        return self.encode(data, len(data))

    @property
    def waiting(self) -> int:
        """Input bytes not decoded yet."""
        return self.fed.length - self.taken

    @property
    def truncated(self) -> bool:
        """Whether the input so far is cut off."""
        return self.cut_short()
