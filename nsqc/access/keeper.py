"""The current access file, read again on SIGHUP and on changes; identifies clients by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

from nsqc.access import rules as files
from nsqc.access.needs import CONSUMING, PUBLISHING, Need
from nsqc.access.quotas import Account
from nsqc.access.rules import AccessError, Limits, Rules, Scope, User
from nsqc.access.servers import Answers, Who
from nsqc.access.tokens import Hash, id_of
from nsqc.access.verifier import Verifier, current
from nsqc.log import Log

if TYPE_CHECKING:
    from nsqc.peers.auth import AuthServers
    from nsqc.peers.grants import Grant

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
