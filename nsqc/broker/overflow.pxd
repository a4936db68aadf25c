# max_depth and max_bytes of a channel, as functions on it: what is beyond them leaves, the oldest first. bounds.pxd has
# what a topic makes of them.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState

# Whether more than these limits would wait, after so many more; a limit of 0 is none.
cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept
cdef int64_t channel_bytes(ChannelState channel) noexcept       # of what waits, about
# With rules: whether it is certain that so many more fit, at a glance: each publish asks this.
cdef inline bint surely_fits(ChannelState channel, int64_t count) noexcept:
    if channel.rules is NULL or channel.rules.max_bytes or channel.cursor is not None:
        return False
    count += channel.backlog.memory.count + channel.front.count + channel.again.heap.count
    if channel.backlog.disk is not None:
        count += channel.backlog.disk.depth
    return count <= channel.rules.max_depth


# With rules: whether more than its limits would wait in a channel, after so many more.
cdef bint channel_exceeds(ChannelState channel, int64_t count, int64_t body_bytes) noexcept
# With rules: has the oldest messages leave that are too many; False: the slice ended.
cdef bint trim_channel(ChannelState channel) noexcept
