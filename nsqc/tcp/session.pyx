"""A client: identity, permissions, RDY, messages in flight. See the .pxd."""

# types: from nsqc.options.declared import Options
cimport cython
import time
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memcmp

from nsqc.broker.refusals import QuotaReached
from nsqc.broker.channel cimport wants_more
from nsqc.broker.topic cimport OpenBatch
from nsqc.options import declared
from nsqc.store.memory cimport monotonic_ns
from nsqc.store.message cimport Message
from nsqc.store.work cimport LoopWork
from nsqc.tcp import identify
from nsqc.tcp.identify import Current
from nsqc.wire.const cimport FRAME_ERROR
from nsqc.wire.stats import ClientStats, PubCount


# ====================================================================== link

cdef class Link(LoopWork):
    """Abstract base of Connection."""

    cdef Py_ssize_t consume(self, const char *c_from, Py_ssize_t length) except -1:
        raise NotImplementedError

    cdef void after_input(self) noexcept:
        pass

    cdef int refuse_stream(self, bytes error) except -1:
        raise NotImplementedError

    cdef void input_ended(self) noexcept:
        pass

    cdef void resume(self) noexcept:
        pass

    cdef int heartbeats_agreed(self, bint first) except -1:
        raise NotImplementedError

    cdef void say_ok(self) noexcept:
        pass

    cdef void upgraded(self) noexcept:
        pass

    cdef void end(self) noexcept:
        pass

    cdef void fail(self, error) noexcept:
        pass

    cdef void lost(self, error) noexcept:
        pass


# ====================================================================== guard
# The permissions of one client, from auth servers or an access file. See the .pxd for commands that wait.

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
        self.user = ""
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
        self.user = grant.identity
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
            self.user = grant.identity
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


# ====================================================================== session

cdef int64_t next_id = 0

DEFAULT_BUFFER_BYTES = 16 * 1024


@cython.final
cdef class Limits:
    """Limits of requests."""

    def __init__(self, options: Options):
        self.max_msg_size = options.message_limit
        self.max_body_size = options.max_body_size
        self.max_rdy_count = options.max_rdy_count
        self.max_req_timeout_ns = options.max_req_timeout
        self.stall_ns = options.handshake_timeout
        self.publish_wait_ns = options.publish_wait
        self.max_buffered_bytes = options.max_buffered_bytes


@cython.final
cdef class Session(Consumer):
    """One client's state. The Connection owns it; its channel sees a Consumer."""

    def __init__(self, Broker broker not None, Limits limits not None, Link link not None, options, log,
                 Outbox outbox not None, address):
        global next_id
        next_id += 1
        self.id = next_id
        self.broker = broker
        self.limits = limits
        self.link = link
        self.options = options
        self.log = log
        self.outbox = outbox
        self.address = address
        host = address.rpartition(":")[0].strip("[]")
        self.shown = {"client_id": host, "hostname": host}
        self.connected = time.time()
        self.heartbeat_ms = self.pace_ms = options.client_timeout // 2_000_000
        self.output_buffer_size = DEFAULT_BUFFER_BYTES
        self.output_buffer_timeout_ms = options.output_buffer_timeout // 1_000_000
        self.msg_timeout_ns = self.touch_timeout_ns = options.msg_timeout
        self.published = {}
        self.batch = OpenBatch.__new__(OpenBatch)
        self.distance = identify.ELSEWHERE if options.is_topology_aware else identify.SAME_ZONE
        self.compression = ""
        self.locked = options.tls_required != declared.TLS_NOT_REQUIRED

    # ------------------------------------------------------------------ for the channel

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        self.outbox.message(message, attempts, wants_more(self))
        self.blocked = self.outbox.blocked

    cdef void dismiss(self) noexcept:
        if self.link is not None:
            self.link.end()

    def forget(self):
        """The connection is gone."""
        self.link = None
        self.channel = None
        self.topic = None

    # ------------------------------------------------------------------ for commands

    cdef int fail(self, bytes error) noexcept:
        self.reply = error
        return FATAL

    cdef bint is_topic(self, const char *c_name, Py_ssize_t length) noexcept:
        cdef Topic topic = self.topic
        return (topic is not None and not topic.exiting and PyBytes_GET_SIZE(topic.name) == length
                and memcmp(PyBytes_AS_STRING(topic.name), c_name, <size_t> length) == 0)

    cdef Topic publish_topic(self, const char *c_name, Py_ssize_t length):
        """The topic to publish to, created if necessary."""
        cdef Topic topic
        if self.is_topic(c_name, length):
            return self.topic
        self.fold_counts()
        topic = self.broker.find(c_name, length)
        if topic is None:
            topic = self.make_topic(c_name[:length])
        self.topic = topic
        return topic

    cdef Topic make_topic(self, bytes name):
        self.created += 1
        if self.guard is not None and self.guard.account is not None:
            refusal = self.guard.account.create(name.decode(), self._has_topic)
            if refusal:
                raise QuotaReached(refusal)
        topic = self.broker.get_topic(name)
        self.record("CREATE", name.decode(), "OK")
        return topic

    def _has_topic(self, str name):
        return self.broker.topic(name.encode()) is not None

    cdef int record(self, str call, str target, str result) except -1:
        """Adds a line to the audit log, if there is one."""
        if self.audit is None or (result == "OK" and not self.audit.wants_changes):
            return 0
        self.audit.record("" if self.guard is None else self.guard.user, self.address, call, target, result)
        return 0

    def fold_counts(self):
        """Moves the current topic's publish count to the statistics."""
        if self.topic is not None and self.topic_count:
            name = self.topic.name.decode()
            self.published[name] = self.published.get(name, 0) + self.topic_count
            self.topic_count = 0

    def permissions_changed(self, bint waited):
        """An auth server has answered, good or bad; waited: a command waits for it."""
        # The next publish, to any topic, repeats the lookup and the permission check.
        self.fold_counts()
        self.topic = None
        if waited:
            self.link.resume()

    def rules_changed(self):
        """The access file has changed: ends a subscription that is no longer permitted."""
        if self.guard is None or self.closed or self.link is None:
            return
        may_stay = self.guard.renew()
        self.permissions_changed(False)
        if not may_stay:
            target = self.guard.topic.decode() + "/" + self.guard.channel.decode()
            self.log.info("PROTOCOL(V2): [%s] may no longer consume %s: closing", self.address, target)
            self.record("SUB", target, "REVOKED")
            text = b"E_UNAUTHORIZED SUB is no longer permitted"
            self.outbox.reply(FRAME_ERROR, text, len(text))
            self.link.end()

    def disconnect(self, user: str) -> None:
        """Closes the connection, as a user wants."""
        if self.link is not None:
            self.log.info("PROTOCOL(V2): [%s] closing, as %s has asked", self.address, user or "an HTTP client")
            self.link.end()

    def who(self) -> tuple[str, str, bool, str]:
        """Describes the client to auth servers."""
        host, _, port = self.address.rpartition(":")
        # The clients of a unix socket have no address, or a path.
        return (self.address, host.strip("[]") if port.isdecimal() else "",
                self.tls is not None, "" if self.tls is None else self.tls.common_name)

    cdef int apply(self, agreement) except -1:
        settings = agreement.settings
        self.reply = agreement.reply
        self.layers = agreement.layers
        self.shown = settings.shown
        self.heartbeat_ms = settings.heartbeat_ms
        self.output_buffer_size = settings.output_buffer_size
        self.output_buffer_timeout_ms = settings.output_buffer_timeout_ms
        self.touch_timeout_ns = settings.msg_timeout_ms * 1_000_000
        self.outbox.size = self.output_buffer_size
        self.publish_ids = agreement.publish_ids
        self.deferred_batches = agreement.deferred_batches
        self.dead_letters = agreement.dead_letters
        if not self.identified:
            self.identified = True
            self.pace_ms = self.heartbeat_ms
            self.sample_rate = settings.shown["sample_rate"]
            self.distance = settings.distance
            self.msg_timeout_ns = self.touch_timeout_ns
            self.outbox.timeout_ms = self.output_buffer_timeout_ms
            self.link.heartbeats_agreed(True)
        else:
            self.link.heartbeats_agreed(False)
        return 0

    def current(self) -> Current:
        """Settings before IDENTIFY is applied."""
        return Current(self.heartbeat_ms, self.output_buffer_size, self.output_buffer_timeout_ms,
                       self.touch_timeout_ns // 1_000_000, self.tls is not None, bool(self.compression))

    # ------------------------------------------------------------------ statistics

    def _auth_stats(self) -> dict:
        """Fields of ClientStats."""
        grant = None if self.guard is None else self.guard.grant
        if grant is None:
            return {}
        return {"authed": bool(grant.rules), "auth_identity": grant.identity, "auth_identity_url": grant.identity_url}

    def _tls_stats(self) -> dict:
        """Fields of ClientStats."""
        if self.tls is None:
            return {}
        return {"tls": True, "tls_version": self.tls.version, "tls_cipher_suite": self.tls.cipher_suite,
                "tls_negotiated_protocol": "", "tls_negotiated_protocol_is_mutual": True}

    def stats(self, topic: str | None = None) -> ClientStats:
        """ClientStats; its publish count is that of topic, or else the first."""
        self.fold_counts()
        counts = [PubCount(name, count) for name, count in self.published.items() if not topic or name == topic]
        return ClientStats(
            version="V2", remote_address=self.address,
            state=self.state, ready_count=self.ready_count, in_flight_count=self.in_flight,
            message_count=self.message_count, finish_count=self.finish_count, requeue_count=self.requeue_count,
            connect_ts=int(self.connected), pub_counts=counts[:1] or None,
            idle_since=int(self.idle_since), backs_off=self.backs_off,
            **self.shown, **({self.compression: True} if self.compression else {}), **self._auth_stats(),
            **self._tls_stats(),
        )
