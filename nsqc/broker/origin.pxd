# Where a dead letter comes from, as a JSON object that is kept beside its body in a log-backed dead-letter topic.

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.broker.channelstate cimport ChannelState
from nsqc.store.delivery cimport Delivery

cdef enum DeadReason:       # Delivery.reason: why its last delivery failed, or why there is none
    DEAD_ATTEMPTS           # it had too many attempts already when it was to be delivered: those of an earlier run
    DEAD_REQUEUED
    DEAD_TIMED_OUT
    DEAD_DISCONNECTED
    DEAD_EXPIRED            # message_ttl
    DEAD_OVERFLOWED         # max_depth or max_bytes

# What the origins of one batch begin with. node: of the daemon, as origin_node() returns it.
cdef bytes origin_head(ChannelState channel, bytes topic, bytes node)
# The origin of a dead delivery, up to MOST_ORIGIN bytes at c_to; how many.
cdef uint32_t origin_store(char *c_to, ChannelState channel, const Delivery *delivery, bytes head) noexcept
# Remembers who a consumer is, for messages that are in flight to it and may be dead letters later.
cdef void origin_client(ChannelState channel, object consumer, int64_t owner) noexcept
