# The origin of a dead letter: a JSON object stored next to its body in a log-backed dead-letter topic.

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.broker.channelstate cimport ChannelState
from nsqc.store.delivery cimport Delivery

cdef enum DeadReason:       # Delivery.reason: why its last delivery failed, or was not made
    DEAD_ATTEMPTS           # too many attempts before this delivery: those of an earlier run
    DEAD_REQUEUED
    DEAD_TIMED_OUT
    DEAD_DISCONNECTED
    DEAD_EXPIRED            # message_ttl
    DEAD_OVERFLOWED         # max_depth or max_bytes

# The beginning of all origins of one batch. node: of the daemon, from origin_node().
cdef bytes origin_head(ChannelState channel, bytes topic, bytes node)
# Writes the origin of a dead delivery, up to MOST_ORIGIN bytes, to c_to; returns its size.
cdef uint32_t origin_store(char *c_to, ChannelState channel, const Delivery *delivery, bytes head) noexcept
# Remembers a consumer, for messages in flight to it that may become dead letters.
cdef void origin_client(ChannelState channel, object consumer, int64_t owner) noexcept
