# Rules of the store, which the debug build checks at run time. Each is stated where it is checked, as RULE.
#
#   if CHECKS and <the rule is broken>:
#       broken("what is wrong")

cdef extern from *:
    """
    #define NSQC_CHECKS NSQC_DEBUG
    """
    bint CHECKS "NSQC_CHECKS"       # a constant: in a release build the compiler leaves the checks out

# Reports it like an uncaught exception; the caller continues.
cdef void broken(const char *c_text) noexcept nogil
