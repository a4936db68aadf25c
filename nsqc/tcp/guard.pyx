"""The permissions of one client, from auth servers or an access file. See the .pxd for commands that wait."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.store.clock cimport monotonic_ns

cdef enum:
    # Interval of questions while all servers are down; the client does not wait for the answers.
    RETRY_NS = 1000000000
    NS_PER_S = 1000000000
    # Bounds the cache: a client may use any number of names.
    MAX_DECISIONS = 4096


@cython.final
cdef class Guard:
    """The permissions of one session."""

    def __init__(self, authority, int64_t grace_ns, client, log):
        self.authority = authority
        self.grace_ns = grace_ns
        self.client = client
        self.log = log
        self.reason = b""
        self.decisions = {}

    cdef bint authed(self) noexcept:
        return self.grant is not None and not self.implicit and len(self.grant.rules) > 0

    cdef bint present(self) except -1:
        """Takes the grant for clients that have not sent AUTH; returns whether there is one."""
        grant = self.authority.presented(self.client.who())
        if grant is None or not self.use(grant.account):
            return False
        self.grant = grant
        self.implicit = True
        self.until_ns = monotonic_ns() + <int64_t> grant.ttl_s * NS_PER_S
        return True

    cdef bint use(self, account) except -1:
        """Has the account of a new grant count this connection; returns whether it is allowed."""
        if account is not self.account:
            if account is not None:
                refusal = account.enter()
                if refusal:
                    self.reason = b" " + refusal.encode()
                    return False
            if self.account is not None:
                self.account.leave()
            self.account = account
        self.metered = account is not None and account.is_metered
        return True

    cdef int authenticate(self, bytes secret) except -1:
        """AUTH: GUARD_ALLOWED, _DENIED, _WAITS, _FAILED or _TWICE."""
        if self.settled:
            self.settled = False
            if self.failed:
                return GUARD_FAILED
            return GUARD_ALLOWED if self.authed() else GUARD_DENIED
        if self.authed():
            return GUARD_TWICE
        self.secret = secret
        return self._wait()

    cdef int check(self, int64_t now_ns, bytes topic, bytes channel) except -1:
        """Checks a subscription, or a publish if channel is empty: ALLOWED, DENIED, WAITS, FAILED or FIRST."""
        if self.grant is None and not self.present():
            return GUARD_FAILED if self.reason else GUARD_FIRST
        if self.settled:
            self.settled = False
            if self.failed:
                return GUARD_FAILED
        elif now_ns >= self.until_ns:
            if now_ns >= self.grace_until_ns:
                return self._wait()
            self.until_ns = min(now_ns + RETRY_NS, self.grace_until_ns)
            if self.asking is None:
                self._ask()
        return self._decide(topic, channel)

    cdef int decided(self, bytes topic) except -1:
        """Checks a publish, by the last answer even if it has expired: GUARD_ALLOWED, _DENIED or _FIRST."""
        return GUARD_FIRST if self.grant is None else self._decide(topic, b"")

    cdef int _wait(self) except -1:
        if self.asking is None:
            self._ask()
        self.waiting = True
        return GUARD_WAITS

    cdef int _ask(self) except -1:
        self.asking = self.authority.ask(self.client.who(), self.secret, self.answered)
        return 0

    cdef int _decide(self, bytes topic, bytes channel) except -1:
        key = (topic, channel)
        allowed = self.decisions.get(key)
        if allowed is None:
            allowed = self.grant.allows(topic.decode(), channel.decode())
            if len(self.decisions) >= MAX_DECISIONS:
                self.decisions.clear()
            self.decisions[key] = allowed
        if allowed:
            return GUARD_ALLOWED
        return GUARD_FIRST if self.implicit else GUARD_DENIED

    def answered(self, grant, bint down):
        """The answer has arrived: a Grant, or None and whether all servers are down."""
        cdef int64_t now_ns = monotonic_ns()
        self.asking = None
        if self.client is None:
            return
        self.failed = False
        self.reason = b""
        if grant is not None and self.use(grant.account):
            self.grant = grant
            self.implicit = False
            self.expires_ns = self.until_ns = now_ns + <int64_t> grant.ttl_s * NS_PER_S
            self.grace_until_ns = 0
            self.decisions.clear()
        elif down and self.authed() and now_ns < self.expires_ns + self.grace_ns:
            if self.grace_until_ns == 0:
                self.log.warn("PROTOCOL(V2): [%s] all auth servers are down, the expired answer counts on",
                              self.client.address)
            self.grace_until_ns = self.expires_ns + self.grace_ns
            self.until_ns = min(now_ns + RETRY_NS, self.grace_until_ns)
        else:
            self.failed = True
            self.until_ns = self.grace_until_ns = 0
        waited = self.waiting
        if waited:
            self.waiting = False
            self.settled = True
        self.client.permissions_changed(waited)

    def renew(self):
        """The access file has changed. Returns whether an existing subscription is still permitted."""
        if self.grant is None:
            return True
        grant = self.authority.renewed(self.grant)
        if grant is not None and not self.use(grant.account):
            grant = None
        self.grant = grant
        self.decisions.clear()
        if grant is None:
            self.implicit = False
            self.until_ns = self.grace_until_ns = 0
            self.use(None)
        return self.channel is None or (grant is not None and grant.allows(self.topic.decode(), self.channel.decode()))

    def close(self):
        """The client is gone."""
        self.use(None)
        if self.asking is not None:
            self.asking.cancel()
            self.asking = None
        self.client = None
