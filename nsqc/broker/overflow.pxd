# max_depth and max_bytes of a channel, as functions on it: what is beyond them leaves, the oldest first. bounds.pxd has
# what a topic makes of them.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState

# Whether more than these limits would wait, after so many more; a limit of 0 is none.
cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept
cdef int64_t channel_bytes(ChannelState channel) noexcept       # of what waits, about
# With rules: the same of a channel.
cdef bint channel_exceeds(ChannelState channel, int64_t count, int64_t body_bytes) noexcept
# With rules: has the oldest messages leave that are too many; False: the slice ended.
cdef bint trim_channel(ChannelState channel) noexcept
