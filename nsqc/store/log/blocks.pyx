"""Blocks of records. See the .pxd."""

from nsqc.store.log.reads cimport records_free


cdef void release_reader(Reader *reader) noexcept:
    if not reader.running:
        records_free(&reader.block)
        reader.block.want = 0


cdef void forget_reader(Reader *reader) noexcept:
    if reader.running:
        reader.stale = True
    else:
        reader.block.begin = reader.block.end = -1
