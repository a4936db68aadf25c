"""The current access file, read again on SIGHUP and on changes; identifies clients by it."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from nsqc.access import rules as files
from nsqc.access.needs import CONSUMING, PUBLISHING, Need
from nsqc.access.rules import AccessError, Hash, Limits, Rules, Scope, User, id_of
from nsqc.log import Log

if TYPE_CHECKING:
    from nsqc.peers.auth import AuthServers, Grant


# ====================================================================== quotas
# Per-user limits, over all of the user's connections.

BURST_S = 1.0       # of publishing allowed at once
LONGEST_S = 3.0     # longest delay of a publish beyond the rate; while one waits this long, the next is refused


class _Rate:
    """An amount per second."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._at = 0.0
        self._used = 0.0        # of the burst; beyond it: debt

    def wait(self, rate: int, amount: int, now: float) -> float:
        """Seconds until this amount may be used, 0 for now."""
        self._used = max(0.0, self._used - (now - self._at) * rate)
        self._at = now
        return max(0.0, (self._used + amount) / rate - BURST_S) if self._used else 0.0

    def use(self, amount: int) -> None:
        """Uses the amount."""
        self._used += amount


class Account:
    """One user's usage. Survives changes of the access file."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.connections = 0
        self._messages = _Rate()
        self._bytes = _Rate()
        self._topics: set[str] = set()

    @property
    def is_metered(self) -> bool:
        """Whether publishes are limited."""
        return self.limits.messages > 0 or self.limits.bytes > 0

    def enter(self) -> str:
        """Counts a connection; returns the reason for refusing it, or an empty text."""
        most = self.limits.connections
        if 0 < most <= self.connections:
            return f"user {self.name} has {self.connections} connections, and max_connections is {most}"
        self.connections += 1
        return ""

    def leave(self) -> None:
        """Uncounts a connection that ended."""
        self.connections -= 1

    def publish(self, messages: int, size: int) -> tuple[float, str]:
        """Counts a publish; returns the client's delay in seconds, and the reason for refusing it, or an empty text.

        size: of the bodies, bytes.
        """
        now, limits, wait = monotonic(), self.limits, 0.0
        for rate, most, amount, key in ((self._messages, limits.messages, messages, "max_messages_per_second"),
                                        (self._bytes, limits.bytes, size, "max_bytes_per_second")):
            if most:
                seconds = rate.wait(most, amount, now)
                # A batch larger than the burst waits; otherwise it could never be published.
                if seconds > max(LONGEST_S, amount / most):
                    return 0.0, f"user {self.name} publishes faster than {key} = {most}"
                wait = max(wait, seconds)
        if limits.messages:
            self._messages.use(messages)
        if limits.bytes:
            self._bytes.use(size)
        return wait, ""

    def create(self, topic: str, exists: Callable[[str], bool]) -> str:
        """Counts a topic created by the user; returns the reason for refusing it, or an empty text."""
        most = self.limits.topics
        if not most:
            return ""
        if len(self._topics) >= most:
            self._topics = {name for name in self._topics if exists(name)}
        if len(self._topics) >= most and topic not in self._topics:
            return f"user {self.name} has created {len(self._topics)} topics, and max_topics is {most}"
        self._topics.add(topic)
        return ""


# ====================================================================== verifier
# Checks tokens: known ones from a cache, others on a thread, one at a time and slowly for an address that sends wrong
# ones. So a flood of wrong tokens occupies at most that thread, and delays no known client.

MOST_TOKENS = 65536      # tokens in each cache; a full one is emptied
MOST_ADDRESSES = 16384
MOST_WAITING = 16       # clients of one address whose tokens wait for a check
FIRST_DELAY_S = 0.05    # after a wrong token; doubles with each
LONGEST_DELAY_S = 2.0
FORGIVEN_S = 60.0       # an address without a wrong token for this long counts as new


class TooManyWrong(Exception):
    """Too many tokens of this address wait for a check."""


class _Address:
    """Recent history of an address."""

    __slots__ = ("failures", "last", "lock", "until", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.last = 0.0         # loop time of the last wrong token
        self.until = 0.0        # loop time from which the next token may be checked
        self.waiting = 0
        self.lock = asyncio.Lock()


class Verifier:
    """Finds the user of a token."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.checks = 0         # hashes computed so far
        self._loop = loop
        # Digests stand for tokens, so no token stays in memory. The key makes them useless elsewhere.
        self._key = os.urandom(32)
        self._known: dict[bytes, Hash] = {}     # tokens that matched
        self._wrong: dict[bytes, Hash] = {}     # tokens that did not
        self._addresses: dict[str, _Address] = {}
        self._thread: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stops the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self, token: bytes, rules: Rules) -> tuple[Hash, User] | None:
        """The hash and user of a checked token; None: not checked yet, or wrong."""
        proven = self._known.get(self._digest(token))
        return None if proven is None else current(proven, rules)

    async def check(self, token: bytes, address: str, rules: Rules) -> tuple[Hash, User] | None:
        """The same for any token; None: wrong. Waits if its address has sent wrong ones. Raises TooManyWrong."""
        name = _network(address)
        at = self._addresses.get(name)
        if at is None:
            if len(self._addresses) >= MOST_ADDRESSES:
                self._forget_addresses()
            at = self._addresses[name] = _Address()
        if at.waiting >= MOST_WAITING:
            raise TooManyWrong
        at.waiting += 1
        try:
            async with at.lock:
                # A check that ran meanwhile may have been of the same token.
                if (found := self.known(token, rules)) is not None:
                    return found
                if (rest := at.until - self._loop.time()) > 0:
                    await asyncio.sleep(rest)
                found = await self._compare(token, rules)
                if found is None:
                    self._failed(at)
                return found
        finally:
            at.waiting -= 1

    async def _compare(self, token: bytes, rules: Rules) -> tuple[Hash, User] | None:
        found = rules.tokens.get(id_of(token) or "")
        if found is None:
            return None
        digest = self._digest(token)
        if self._wrong.get(digest) == found[0]:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="nsqc-tokens")
        self.checks += 1
        matches = await self._loop.run_in_executor(self._thread, found[0].matches, token)
        cache = self._known if matches else self._wrong
        if len(cache) >= MOST_TOKENS:
            cache.clear()
        cache[digest] = found[0]
        return found if matches else None

    def _digest(self, token: bytes) -> bytes:
        return hashlib.blake2b(token, digest_size=16, key=self._key).digest()

    def _failed(self, at: _Address) -> None:
        now = self._loop.time()
        at.failures = at.failures + 1 if now - at.last < FORGIVEN_S else 1
        at.last = now
        at.until = now + min(FIRST_DELAY_S * 2.0 ** min(at.failures - 1, 16), LONGEST_DELAY_S)

    def _forget_addresses(self) -> None:
        """Drops idle addresses, forgiven ones first."""
        now = self._loop.time()
        idle = [name for name, at in self._addresses.items() if not at.waiting]
        forgiven = [name for name in idle if now - self._addresses[name].last >= FORGIVEN_S]
        for name in forgiven or idle:
            del self._addresses[name]


def current(proven: Hash, rules: Rules) -> tuple[Hash, User] | None:
    """The current user of a proven hash; None: no longer in the file."""
    found = rules.tokens.get(proven.id)
    return found if found is not None and found[0] == proven else None


def _network(address: str) -> str:
    """Key for counting wrong tokens: an IPv4 address, or a /64 network, since IPv6 gives one to each customer."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


# ====================================================================== servers
# Asks auth servers about HTTP clients whose secret is not a token of the access file. Answers count for their TTL.

MOST_ANSWERS = 4096       # answers; a full cache is emptied

Who = tuple[str, str, bool, str]    # address, host or "", whether it uses TLS, common name of its certificate or ""


class Answers:
    """Caches auth servers' answers by secret and client: an answer may depend on both."""

    def __init__(self, servers: AuthServers, loop: asyncio.AbstractEventLoop) -> None:
        self._servers = servers
        self._loop = loop
        self._key = os.urandom(32)
        self._known: dict[tuple[bytes, str, bool, str], tuple[Grant, float]] = {}     # and its end of validity

    def known(self, who: Who, secret: bytes) -> Grant | None:
        """The last answer, if it is positive and still valid."""
        found = self._known.get(self._place(who, secret))
        return found[0] if found is not None and self._loop.time() < found[1] else None

    async def ask(self, who: Who, secret: bytes) -> Grant | None:
        """Asks now; None without a positive answer."""
        grant, _ = await self._servers.ask(who, secret)
        if grant is not None:
            if len(self._known) >= MOST_ANSWERS:
                self._known.clear()
            self._known[self._place(who, secret)] = grant, self._loop.time() + grant.ttl_s
        return grant

    def _place(self, who: Who, secret: bytes) -> tuple[bytes, str, bool, str]:
        return hashlib.blake2b(secret, digest_size=16, key=self._key).digest(), *who[1:]


# ====================================================================== keeper

CHECK_S = 0.5   # how often the file is checked for a change


class Subject(NamedTuple):
    """A client with its proven identities: it has the permissions of all these users."""

    users: tuple[User, ...]     # the token's, the certificate's, anonymous; those present
    token: Hash | None = None   # proven
    common_name: str = ""
    account: Account | None = None      # of the first user with limits
    servers: Grant | None = None        # grant of the auth servers

    @property
    def name(self) -> str:
        """The first user's name, or the name from the auth servers; empty: unidentified."""
        if self.servers is not None and not any(user.name != files.ANONYMOUS for user in self.users):
            return self.servers.identity
        return self.users[0].name if self.users else ""

    @property
    def is_known(self) -> bool:
        """Whether it has shown a token or certificate listed in the file, or a secret accepted by the auth servers."""
        return self.servers is not None or any(user.name != files.ANONYMOUS for user in self.users)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Union of all grants."""
        return tuple(scope for user in self.users for scopes in user.scopes.values() for scope in scopes)

    def reason(self, need: Need, topic: str = "", channel: str = "") -> str:
        """The grant that permits a call; empty: none does."""
        for user in self.users:
            if reason := user.reason(need, topic, channel):
                return reason
        if self.servers is None or not topic:
            return ""
        # Auth servers grant publishing and consuming, and nothing else that needs such a grant.
        may = ((need == PUBLISHING and self.servers.allows(topic, ""))
               or (need == CONSUMING and bool(channel) and self.servers.allows(topic, channel)))
        return "auth servers" if may else ""


class Access:
    """Identifies clients. Their permissions are up to their Subject."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, workers: Executor, log: Log,
                 trusts_certificates: bool, servers: AuthServers | None = None) -> None:
        """trusts_certificates: names in client certificates are verified. servers: asked about HTTP clients' secrets
        that are not tokens. Raises AccessError."""
        self.verifier = Verifier(loop)
        self._answers = None if servers is None else Answers(servers, loop)
        self._path = path
        self._loop = loop
        self._workers = workers
        self._log = log
        self._trusts_certificates = trusts_certificates
        self._listeners: list[Callable[[], None]] = []
        self._accounts: dict[str, Account] = {}
        self._seen = look(path)
        self.rules = files.read(path)
        self._job: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._warn()

    def on_change(self, call: Callable[[], None]) -> None:
        """Registers a callback for new rules."""
        self._listeners.append(call)

    # ------------------------------------------------------------------ identity

    def known(self, token: bytes | None, who: Who) -> Subject | None:
        """Identifies a client; None: its token is not checked yet, or wrong."""
        if token is None:
            return self._subject(None, who[3])
        found = self.verifier.known(token, self.rules)
        if found is not None:
            return self._subject(found, who[3])
        granted = None if self._answers is None else self._answers.known(who, token)
        return None if granted is None else self._subject(None, who[3])._replace(servers=granted)

    def is_possible(self, token: bytes) -> bool:
        """Whether a token that is not known may turn out to be right."""
        identity = id_of(token)
        return self._answers is not None if identity is None else identity in self.rules.tokens

    async def check(self, token: bytes, who: Who) -> Subject | None:
        """The same for any token; None: wrong. Raises TooManyWrong."""
        if self._answers is not None and id_of(token) is None:
            granted = await self._answers.ask(who, token)
            return None if granted is None else self._subject(None, who[3])._replace(servers=granted)
        found = await self.verifier.check(token, who[1], self.rules)
        # The file may have changed meanwhile.
        found = None if found is None else current(found[0], self.rules)
        return None if found is None else self._subject(found, who[3])

    def renewed(self, subject: Subject) -> Subject:
        """A connected client, by the current rules."""
        found = None if subject.token is None else current(subject.token, self.rules)
        return self._subject(found, subject.common_name)._replace(servers=subject.servers)

    def _subject(self, found: tuple[Hash, User] | None, common_name: str) -> Subject:
        users = [] if found is None else [found[1]]
        if common_name and self._trusts_certificates:
            user = self.rules.certificates.get(common_name)
            if user is not None and user not in users:
                users.append(user)
        account = next((self._account(user) for user in users if user.limits != Limits()), None)
        if self.rules.anonymous is not None:
            users.append(self.rules.anonymous)
        return Subject(tuple(users), None if found is None else found[0], common_name, account)

    def _account(self, user: User) -> Account:
        account = self._accounts.get(user.name)
        if account is None:
            account = self._accounts[user.name] = Account(user.name, user.limits)
        account.limits = user.limits
        return account

    # ------------------------------------------------------------------ the file

    def watch(self) -> None:
        """Starts checking the file for changes."""
        self._timer = self._loop.call_later(CHECK_S, self._check)

    def close(self) -> None:
        """Stops checking."""
        if self._timer is not None:
            self._timer.cancel()
        self.verifier.close()

    def reload(self) -> None:
        """Reads the file again, changed or not."""
        if self._job is not None and not self._job.done():
            self._job.add_done_callback(lambda _: self.reload())
            return
        self._begin(True)

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        if self._job is None or self._job.done():
            self._begin(False)

    def _begin(self, always: bool) -> None:
        self._job = self._loop.run_in_executor(self._workers, self._read, always)

    def _read(self, always: bool) -> None:
        """Runs on a worker thread."""
        seen = look(self._path)
        if seen == self._seen and not always:
            return
        self._seen = seen
        try:
            rules = files.read(self._path)
        except AccessError as error:
            self._log.error("ACCESS: keeping the old rules - %s", error, each=True)
        else:
            self._loop.call_soon_threadsafe(self._take, rules)

    def _take(self, rules: Rules) -> None:
        self.rules = rules
        self._log.info("ACCESS: %d users in %s", len(rules.users), self._path)
        self._warn()
        for user in rules.users.values():
            if user.name in self._accounts:
                self._accounts[user.name].limits = user.limits
        for call in self._listeners:
            call()

    def _warn(self) -> None:
        if self.rules.certificates and not self._trusts_certificates:
            self._log.warn("ACCESS: certificates in %s are ignored: they are not verified without "
                           "--tls-client-auth-policy=require-verify", self._path)
        if isinstance(self._seen, tuple) and self._seen[3] & 0o022:
            self._log.warn("ACCESS: %s is writable by group or others: chmod go-w", self._path)


def look(path: str) -> tuple[int, int, int, int] | int:
    """Values that change with a file: times, size, inode and mode; or errno."""
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno or 0
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
