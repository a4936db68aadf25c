# The permissions of one client, from auth servers or an access file: the last answer, and the decisions derived from
# it. The access file may grant something to a client that has not sent AUTH: an implicit grant.
#
# A command that needs an answer gets GUARD_WAITS, and its connection waits (see Link.resume). After the answer, good or
# bad, the command is rerun from its start; for this run the answer counts even if it has expired.

from libc.stdint cimport int64_t

cdef enum Verdict:
    GUARD_ALLOWED
    GUARD_DENIED        # the answer does not cover this; for AUTH: it covers nothing
    GUARD_WAITS         # a question is pending
    GUARD_FAILED        # no server gave a good answer
    GUARD_FIRST         # AUTH must come first: nothing permits this without it
    GUARD_TWICE         # AUTH has already succeeded


cdef class Guard:
    cdef object authority           # nsqc.access.authority.Authority
    cdef object client              # nsqc.tcp.session.Session; None after its end
    cdef object log                 # nsqc.log.Log
    cdef bytes secret               # of AUTH
    cdef readonly object grant      # the last good answer: nsqc.access.authority.Grant; None before
    cdef int64_t until_ns           # monotonic: the next question is due then
    cdef int64_t expires_ns         # monotonic: when the answer expires
    cdef int64_t grace_until_ns     # monotonic: with all servers down, an expired answer counts until then; 0: no
    cdef int64_t grace_ns           # auth-grace
    cdef object asking              # the task of the pending question; None: none
    cdef bint waiting               # the client's command waits for it
    cdef bint settled               # it was answered; the command that waited comes next
    cdef bint failed                # without a good answer
    cdef bint implicit              # the grant is that of a client without AUTH
    cdef object account             # nsqc.access.quotas.Account of the grant: counts this connection; None: no limits
    cdef bint metered               # publishes count
    cdef bytes reason               # why the last question failed, for the client; empty: no answer
    cdef bytes topic, channel       # subscription; None before
    cdef dict decisions             # (topic, channel) to whether the answer covers it; channel b"": publishing

    # Whether a publish needs no question and is not counted: it is for the topic last published to (known), and the
    # answer is still valid.
    cdef inline bint passes(self, bint known, int64_t now_ns) noexcept:
        return known and self.until_ns > now_ns and not self.metered
    cdef bint authed(self) noexcept
    cdef bint present(self) except -1
    cdef bint use(self, grant) except -1
    cdef int authenticate(self, bytes secret) except -1
    cdef int check(self, int64_t now_ns, bytes topic, bytes channel) except -1
    cdef int decided(self, bytes topic) except -1
    cdef int _wait(self) except -1
    cdef int _ask(self) except -1
    cdef int _decide(self, bytes topic, bytes channel) except -1
