"""Delivery rules of a channel. See the .pxd."""

from libc.math cimport pow
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport calloc


cdef ChannelRules *rules_new(object rule) except? NULL:
    cdef ChannelRules *rules
    if rule is None or rule.is_off:
        return NULL
    rules = <ChannelRules *> calloc(1, sizeof(ChannelRules))
    if rules is NULL:
        raise MemoryError
    rules.requeue_delay_ns = rule.requeue_delay
    rules.requeue_max_ns = rule.requeue_max
    rules.requeue_backoff = rule.requeue_backoff
    rules.requeue_on_disconnect = rule.requeue_on_disconnect
    return rules


cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil:
    cdef double delay_ns
    if rules.requeue_delay_ns == 0:
        return 0
    delay_ns = <double> rules.requeue_delay_ns * pow(rules.requeue_backoff, max(<int> attempts - 1, 0))
    # Compared as doubles: a large power does not fit an integer.
    return <int64_t> delay_ns if delay_ns < <double> rules.requeue_max_ns else rules.requeue_max_ns
