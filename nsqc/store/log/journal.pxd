# The state of a log topic's channels, built from operations: see ops.pxd. All C; may run on any thread. A state has one
# owner.
#
# Lost operations cause redeliveries, never lost messages: only offsets read as finished are finished. The exception is
# a lost OP_RESET to an earlier offset (a seek back), so writers write frames with OP_RESET or OP_NAME twice.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.log.offsets cimport OffsetSet
from nsqc.wire.const cimport MAX_NAME_BYTES

cdef struct ChannelState:
    uint32_t number             # TOPIC_NUMBER: its cursor is the first offset hidden from channels
    int name_bytes              # 0: the name is lost to damage; or this is the topic
    char[MAX_NAME_BYTES + 1] name
    int64_t cursor              # next offset never delivered
    OffsetSet out               # below the cursor: unfinished
    OffsetSet skips             # at or ahead of the cursor: skipped at delivery

cdef struct JournalState:
    ChannelState **channels     # owned, by number
    int64_t count, room
    uint32_t *by_name           # owned: numbers of channels, hashed by name; 0: free. Some are outdated
    int64_t name_count, name_room
    int64_t at                  # number of the last applied frame
    int64_t damaged             # places with lost frames, and invalid operations


cdef void state_free(JournalState *state) noexcept nogil            # resets it to all zeros, as at the start
# Applies the operations of a frame, up to the first invalid one. 0 or ENOMEM.
cdef int state_apply(JournalState *state, const char *c_ops, int64_t length) noexcept nogil
cdef ChannelState *state_channel(const JournalState *state, uint32_t number) noexcept nogil     # NULL: none
