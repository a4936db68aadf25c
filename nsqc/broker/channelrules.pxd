# The delivery rules of a channel, as C values. NULL stands for no rules: each check of a rule begins with that one
# branch.

from libc.stdint cimport int64_t, uint16_t, uint32_t


cdef enum Overflow:             # the action at max_depth and max_bytes
    OVERFLOW_REFUSE             # refuses publishes
    OVERFLOW_DROP               # drops the oldest messages
    OVERFLOW_DIE                # moves them to the dead-letter topic


cdef struct ChannelRules:
    int64_t requeue_delay_ns        # 0: no back-off
    int64_t requeue_max_ns
    double requeue_backoff
    bint requeue_on_disconnect
    uint32_t max_attempts           # deliveries before a message goes to the dead-letter topic; 0: no limit
    bint ordered                    # max_in_flight is 1, and a failed message is redelivered next
    int64_t max_in_flight           # over all consumers; 0: no limit
    int64_t interval_ns             # average between deliveries; 0: no rate limit
    int64_t burst_ns                # how far deliveries may be ahead of that
    int64_t message_ttl_ns          # after publishing; then a message expires. 0: never
    bint expired_die                # expired messages go to the dead-letter topic; else they are dropped
    int64_t max_depth, max_bytes    # of waiting messages; 0: no limit
    Overflow overflow
    bint paces                      # max_in_flight or rate is set
    bint dies                       # messages may go to the dead-letter topic
    bint trims                      # the oldest messages are removed at such a limit
    bint watches                    # waiting messages may have to be removed


# Converts the key `overflow` of a rule. can_die: there is a dead-letter topic.
cdef Overflow overflow_of(object rule, bint can_die) except *
# From a nsqc.options.channel_keys.ChannelRule; NULL if it is None or changes nothing. can_die: there is a dead-letter
# topic. Raises MemoryError.
cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL
# How long a message waits after a failed delivery if the client gave no delay.
cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil
