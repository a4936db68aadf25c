# What one client may do, where auth servers are asked: their last answer, and what followed from it so far.
#
# A command that needs an answer gets GUARD_WAITS, its connection waits (see Connection.go_on), and the command is run
# again from its begin once the answer is there, good or bad; then it counts even if its time is over already.

from libc.stdint cimport int64_t

cdef enum Verdict:
    GUARD_ALLOWED
    GUARD_DENIED        # the answer does not cover this; of AUTH: it covers nothing
    GUARD_WAITS         # an answer is asked for
    GUARD_FAILED        # no server has given a good answer
    GUARD_FIRST         # AUTH must come first
    GUARD_TWICE         # AUTH has been there


cdef class Guard:
    cdef object authority           # nsqc.tcp.protocols.Authority
    cdef object client              # nsqc.tcp.protocols.AuthClient: the session; None when it has ended
    cdef object log                 # nsqc.log.Log
    cdef bytes secret               # of AUTH
    cdef readonly object grant      # the last good answer: nsqc.tcp.protocols.Grant; None before
    cdef int64_t until_ns           # monotonic: up to then nothing need be asked
    cdef int64_t expires_ns         # monotonic: the end of the answer's time
    cdef int64_t grace_until_ns     # monotonic: all servers are down, so an expired answer counts until then; 0: not so
    cdef int64_t grace_ns           # auth-grace
    cdef object asking              # the task of the question under way; None: there is none
    cdef bint waiting               # the client's command waits for it
    cdef bint settled               # it has been answered; the command that waited comes next
    cdef bint failed                # badly
    cdef dict decisions             # (topic, channel) to whether the answer covers it; channel b"" for publishing

    cdef bint authed(self) noexcept
    cdef int authenticate(self, bytes secret) except -1
    cdef int check(self, int64_t now_ns, bytes topic, bytes channel) except -1
    cdef int _wait(self) except -1
    cdef int _ask(self) except -1
    cdef int _decide(self, bytes topic, bytes channel) except -1
