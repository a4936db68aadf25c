# What channels of a log topic have done, as operations say it: see ops.pxd. All of it is C and may run on any thread; a
# state has one owner.
#
# Lost operations make messages come again, and leave none out: only what was read as finished is. The exception is a
# lost OP_RESET to an earlier offset (a seek back), so writers write frames with OP_RESET or OP_NAME twice.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.log.offsets cimport OffsetSet
from nsqc.wire.const cimport MAX_NAME_BYTES

cdef struct ChannelState:
    uint32_t number             # TOPIC_NUMBER: its cursor is the first offset that is not for the channels
    int name_bytes              # 0: its name is not known, it was lost to damage; or it is the topic
    char[MAX_NAME_BYTES + 1] name
    int64_t cursor              # next offset never delivered
    OffsetSet out               # below the cursor: unfinished
    OffsetSet skips             # at or ahead of the cursor: not to be delivered when it comes there

cdef struct JournalState:
    ChannelState **channels     # owned, by number
    int64_t count, room
    int64_t at                  # number of the last frame that was applied
    int64_t damaged             # places where frames are lost, and operations that make no sense


cdef void state_free(JournalState *state) noexcept nogil            # all zeros then, as it begins
# Applies the operations of a frame, up to one that makes no sense. 0 or ENOMEM.
cdef int state_apply(JournalState *state, const char *c_ops, int64_t length) noexcept nogil
cdef ChannelState *state_channel(const JournalState *state, uint32_t number) noexcept nogil     # NULL: none
