"""What a topic consists of. See the .pxd."""

cimport cython

from nsqc.store.log.buffer cimport buffer_free


@cython.final
cdef class OpenBatch:
    """What a multi-publish has published so far, if that is to be appended to a log as a whole."""

    def __dealloc__(self):
        buffer_free(&self.staged)


cdef class TopicState(ChannelOwner):
    """What the parts of a topic share."""

    cdef void refresh(self) noexcept:
        pass
