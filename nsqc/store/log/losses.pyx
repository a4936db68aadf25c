"""Messages that a log has lost. See the .pxd."""

from libc.stdint cimport int64_t

cdef enum:
    MOST_RANGES = 1024          # of damage; what is found beyond them may count again


cdef int64_t damage_found(LogState log, int64_t first, int64_t end):
    cdef int64_t fresh = end - first, begin, after
    cdef list kept = []
    for begin, after in log.damage:
        if after < first or begin > end:
            kept.append((begin, after))
            continue
        fresh -= max(min(after, end) - max(begin, first), <int64_t> 0)
        first, end = min(begin, first), max(after, end)
    if len(kept) < MOST_RANGES:
        kept.append((first, end))
    log.damage = kept
    log.damaged += max(fresh, <int64_t> 0)
    losses_found(log)
    return max(fresh, <int64_t> 0)


cdef void losses_found(LogState log):
    if log.losers is not None:
        log.losers[log.name] = log


cdef void losses_forgotten(LogState log):
    if log.losers is not None and log.losers.get(log.name) is log:
        del log.losers[log.name]
