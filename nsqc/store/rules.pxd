# Invariants of the store, checked at run time by the debug build. Each is stated where it is checked, as RULE.
#
#   if CHECKS and <the rule is broken>:
#       broken("what is wrong")

cdef extern from *:
    """
    #define NSQC_CHECKS NSQC_DEBUG
    """
    bint CHECKS "NSQC_CHECKS"       # a constant: a release build compiles the checks out

# Reports the message like an uncaught exception; the caller continues.
cdef void broken(const char *c_text) noexcept nogil
