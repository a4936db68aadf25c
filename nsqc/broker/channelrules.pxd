# The delivery rules of a channel, as C values. NULL stands for a channel without rules: each check of a rule begins
# with that one branch.

from libc.stdint cimport int64_t, uint16_t, uint32_t


cdef enum Overflow:             # what happens at max_depth and max_bytes
    OVERFLOW_REFUSE             # publishes are refused
    OVERFLOW_DROP               # the oldest messages are dropped,
    OVERFLOW_DIE                # or go to the dead-letter topic


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
    int64_t message_ttl_ns          # after publishing; then a message expires. 0: never
    bint expired_die                # it goes to the dead-letter topic; else it is dropped
    int64_t max_depth, max_bytes    # of what waits; 0: no limit
    Overflow overflow
    bint paces                      # max_in_flight or rate is set
    bint dies                       # messages may go to the dead-letter topic
    bint trims                      # there is such a limit, and the oldest messages leave at it
    bint watches                    # messages that wait may have to leave


# What the key `overflow` of a rule stands for. can_die: there is a dead-letter topic.
cdef Overflow overflow_of(object rule, bint can_die) except *
# From a nsqc.broker.protocols.ChannelRule; NULL if it is None or changes nothing. can_die: there is a dead-letter
# topic. Raises MemoryError.
cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL
# How long a message waits after its last delivery failed without a delay of the client's own.
cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil
