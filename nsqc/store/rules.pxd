# Rules of the store that the debug build checks while it runs. Each is stated where it is checked, as RULE.
#
#   if CHECKS and <the rule is broken>:
#       broken("what is wrong")

cdef extern from *:
    """
    #define NSQC_CHECKS NSQC_DEBUG
    """
    bint CHECKS "NSQC_CHECKS"       # a constant: in a release build the compiler leaves the checks out

# Tells of it as of any exception that nobody has caught; whoever has found it goes on.
cdef void broken(const char *c_text) noexcept nogil
