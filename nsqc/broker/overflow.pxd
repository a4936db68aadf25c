# max_depth and max_bytes of a channel, as functions on it: removes excess messages, the oldest first. bounds.pxd
# applies them to publishes.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState

# Whether more messages would exceed these limits; 0: no limit.
cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept
cdef int64_t channel_bytes(ChannelState channel) noexcept       # of waiting messages, about
# With rules: whether more messages certainly fit, from a cheap check: runs for each publish.
cdef inline bint surely_fits(ChannelState channel, int64_t count) noexcept:
    if channel.rules is NULL or channel.rules.max_bytes or channel.cursor is not None:
        return False
    count += channel.backlog.memory.count + channel.front.count + channel.again.heap.count
    if channel.backlog.disk is not None:
        count += channel.backlog.disk.depth
    return count <= channel.rules.max_depth


# With rules: whether more messages would exceed the channel's limits.
cdef bint channel_exceeds(ChannelState channel, int64_t count, int64_t body_bytes) noexcept
# With rules: removes the oldest excess messages; False: the slice ended.
cdef bint trim_channel(ChannelState channel) noexcept
