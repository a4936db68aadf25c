"""Delivery rules of a channel. See the .pxd."""

from libc.math cimport pow
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport calloc

cdef double NS = 1e9
cdef double MOST_NS = 1e12      # with the largest burst as a factor and a time added, this fits 64 bits
cdef int64_t LEAST_BURST_NS = 10000000      # timers have steps of a millisecond, and the loop has other work


cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL:
    cdef ChannelRules *rules
    cdef double interval_ns
    if rule is None or rule.is_off:
        return NULL
    rules = <ChannelRules *> calloc(1, sizeof(ChannelRules))
    if rules is NULL:
        raise MemoryError
    rules.requeue_delay_ns = rule.requeue_delay
    rules.requeue_max_ns = rule.requeue_max
    rules.requeue_backoff = rule.requeue_backoff
    rules.requeue_on_disconnect = rule.requeue_on_disconnect
    rules.max_attempts = rule.max_attempts if can_die else 0
    rules.ordered = rule.ordered
    rules.max_in_flight = 1 if rule.ordered else rule.max_in_flight
    if rule.rate:
        interval_ns = min(max(NS / <double> rule.rate, 1.0), MOST_NS)
        rules.interval_ns = <int64_t> interval_ns
        rules.burst_ns = max(<int64_t> (rule.rate_burst - 1) * rules.interval_ns, LEAST_BURST_NS)
    # Without a dead-letter topic, messages for it stay: none is dropped against the rule.
    rules.expired_die = can_die and rule.expired == "dead-letter"
    rules.message_ttl_ns = rule.message_ttl if can_die or rule.expired == "drop" else 0
    rules.max_depth = rule.max_depth
    rules.max_bytes = rule.max_bytes
    rules.overflow = overflow_of(rule, can_die)
    rules.paces = rules.max_in_flight > 0 or rules.interval_ns > 0
    rules.dies = rules.max_attempts > 0 or rules.expired_die or rules.overflow == OVERFLOW_DIE
    rules.trims = (rules.max_depth > 0 or rules.max_bytes > 0) and rules.overflow != OVERFLOW_REFUSE
    rules.watches = rules.trims or rules.message_ttl_ns > 0
    return rules


cdef Overflow overflow_of(object rule, bint can_die) except *:
    if rule.overflow == "drop-oldest":
        return OVERFLOW_DROP
    return OVERFLOW_DIE if rule.overflow == "dead-letter" and can_die else OVERFLOW_REFUSE


cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil:
    cdef double delay_ns
    if rules.requeue_delay_ns == 0:
        return 0
    delay_ns = <double> rules.requeue_delay_ns * pow(rules.requeue_backoff, max(<int> attempts - 1, 0))
    # Compared as doubles: large powers overflow an integer.
    return <int64_t> delay_ns if delay_ns < <double> rules.requeue_max_ns else rules.requeue_max_ns
