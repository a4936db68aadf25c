# Blocks of records that a cursor has read from its log.

from libc.stdint cimport int64_t
from nsqc.store.log.reads cimport ReadRecords
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport load_i32


cdef struct Reader:
    # A block of records and a place in it.
    ReadRecords block       # its data is owned; begin and end are the offsets of its records
    int64_t offset, at      # of a record in the block
    bint running            # the block is being read by a thread
    bint stale              # what is being read is not wanted any more


# The record of an offset that the block has.
cdef inline const char *find_record(Reader *reader, int64_t offset) noexcept:
    if offset < reader.offset:
        reader.offset = reader.block.begin
        reader.at = 0
    while reader.offset < offset:
        reader.at += SIZE_BYTES + <int64_t> load_i32(reader.block.c_data + reader.at)
        reader.offset += 1
    return reader.block.c_data + reader.at

# Whether the last read has found that this record is not intact.
cdef inline bint known_damaged(Reader *reader, int64_t offset) noexcept:
    return reader.block.offset <= offset < reader.block.begin

cdef void release_reader(Reader *reader) noexcept       # its memory, unless a thread reads
cdef void forget_reader(Reader *reader) noexcept        # it has nothing
