# The delivery rules of a channel, as C values. NULL stands for a channel without rules: each check of a rule begins
# with that one branch.

from libc.stdint cimport int64_t, uint16_t, uint32_t


cdef struct ChannelRules:
    int64_t requeue_delay_ns        # 0: no back-off
    int64_t requeue_max_ns
    double requeue_backoff
    bint requeue_on_disconnect
    uint32_t max_attempts           # then a message goes to the dead-letter topic; 0: never
    bint ordered                    # max_in_flight is 1, and a message that failed is the next one
    int64_t max_in_flight           # over all consumers; 0: no limit
    int64_t interval_ns             # between deliveries, on average; 0: no limit of the rate
    int64_t burst_ns                # how far deliveries may be ahead of that


# From a nsqc.broker.protocols.ChannelRule; NULL if it is None or changes nothing. can_die: there is a dead-letter
# topic. Raises MemoryError.
cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL
# How long a message waits after its last delivery failed without a delay of the client's own.
cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil
