"""Records of a disk queue, read-only. See the .pyi.

The caller reads them from files that the queue may finish and remove meanwhile; file numbers are not reused, so a
position is valid as long as it is after the read position.
"""

import os
from collections import namedtuple

from libc.stdint cimport int64_t
from libc.string cimport memset

from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.disk.state cimport buffered_records
from nsqc.store.disk.segment cimport Block, block_read, window_free
from nsqc.store.disk.writebuf cimport WriteBuf
from nsqc.store.peek cimport Page
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32

Extent = namedtuple("Extent", "read write read_count write_count max_record")
Records = namedtuple("Records", "begin end data")

cdef enum:
    COPIED_BYTES = 262144       # of a buffer, per call; at least one record


def extent(DiskQueue queue not None):
    """See the .pyi."""
    return Extent((queue.read_number, queue.read_at), (queue.write_number, queue.write_at),
                  queue.committed + buffered_records(queue) - queue.depth, queue.committed, queue.max_record)


def read(str path not None, int64_t at, int64_t limit, int64_t max_record, int64_t want):
    """See the .pyi."""
    cdef bytes name = os.fsencode(path)
    cdef const char *c_path = name
    cdef Block block
    memset(&block, 0, sizeof(block))
    with nogil:
        block_read(&block, c_path, at, limit, max_record, want)
    try:
        if block.answer < 0:
            raise OSError(-block.answer, os.strerror(-block.answer), path)
        if block.answer == 0:
            return Records(block.window.limit, block.window.limit, b"")
        begin = block.begin - block.window.start
        return Records(block.begin, block.end, block.window.c_data[begin:begin + block.end - block.begin])
    finally:
        window_free(&block.window)


def add_buffered(DiskQueue queue not None, Page page not None, int64_t skip):
    """See the .pyi."""
    cdef int64_t passed = 0
    cdef bint more = True
    if queue.writing is not NULL:
        more = add_buffer(&queue.writing.out, page, &skip, &passed)
    if more:
        more = add_buffer(&queue.kept, page, &skip, &passed)
    if more:
        more = add_buffer(&queue.out, page, &skip, &passed)
    return passed, more


cdef bint add_buffer(WriteBuf *out, Page page, int64_t *skip, int64_t *passed) except? False:
    """Whether the page still has room after adding all of it."""
    cdef int64_t at = out.taken, end, length, begin
    while at < out.length and skip[0] > 0:
        at += SIZE_BYTES + <int64_t> load_i32(out.c_data + at)
        skip[0] -= 1
        passed[0] += 1
    while at < out.length:
        begin = end = at
        while end < out.length:
            length = SIZE_BYTES + <int64_t> load_i32(out.c_data + end)
            if end > begin and end + length - begin > COPIED_BYTES:
                break
            end += length
        before = len(page.messages)
        added = page.add_records(out.c_data[begin:end])[0]
        passed[0] += len(page.messages) - before
        at += added
        if at < end:
            return False
    return True
