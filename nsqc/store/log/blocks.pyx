"""Blocks of records. See the .pxd."""

from nsqc.store.log.reads cimport records_free
from nsqc.store.message cimport Message, message_unref


cdef void release_reader(Reader *reader) noexcept:
    if not reader.running:
        records_free(&reader.block)
        reader.block.want = 0


cdef void give_back(Reader *reader, Message *message) noexcept:
    if message is not NULL:
        message_unref(message)
    records_free(&reader.block)


cdef void forget_reader(Reader *reader) noexcept:
    if reader.running:
        reader.stale = True
    else:
        reader.block.begin = reader.block.end = -1
