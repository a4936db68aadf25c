# The delivery rules of a channel, as C values. NULL stands for a channel without rules: each check of a rule begins with
# that one branch.

from libc.stdint cimport int64_t, uint16_t


cdef struct ChannelRules:
    int64_t requeue_delay_ns        # 0: no back-off
    int64_t requeue_max_ns
    double requeue_backoff
    bint requeue_on_disconnect


# From a nsqc.broker.protocols.ChannelRule; NULL if it is None or changes nothing. Raises MemoryError.
cdef ChannelRules *rules_new(object rule) except? NULL
# How long a message waits after its last delivery failed without a delay of the client's own.
cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil
