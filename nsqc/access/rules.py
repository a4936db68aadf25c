"""The access file: users, their permissions, and the topics that nodes may announce to a lookup server.

    anonymous = ["dashboard"]               # roles of clients that show neither a token nor a certificate

    [roles.dashboard]
    stats = ["*"]

    [users.billing]
    tokens = ["scrypt:..."]                 # nsqc access token
    certificates = ["billing.example"]      # common names
    roles = ["dashboard"]
    consume = ["orders.*/billing*"]         # TOPIC or TOPIC/CHANNEL
    max_connections = 10

    [nodes."10.1.0.0/16"]
    topics = ["orders.*"]
    addresses = ["*.nsq.internal"]          # that they may announce as their own
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from typing import NamedTuple

from nsqc.access.needs import CHANNEL, GRANTS, NODE, NOTHING, PART, Need
from nsqc.options.file import TomlError, parse_toml
from nsqc.wire.nodehosts import NodeHosts, ip_of

# ====================================================================== tokens
# Tokens: random bytes, stored as salted scrypt hashes.
#
# A token is nsqc_ID_SECRET. ID finds its hash, so checking a token costs one hash regardless of their number.

PREFIX = "nsqc_"
ID_DIGITS = 12
_TOKEN = re.compile(rb"nsqc_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_HASH = re.compile(r"scrypt:([0-9a-f]{12}):(\d{1,2}):(\d{1,2}):(\d):([A-Za-z0-9_-]{22,}):([A-Za-z0-9_-]{43})")
# A check takes 50 ms and 16 MiB.
_LOG_N, _R, _P = 14, 8, 1
_LEAST_LOG_N, _MOST_LOG_N = 14, 18
_MOST_MEMORY = 600 * 1024 * 1024
_SALT_BYTES = 16
_SECRET_BYTES = 32
_HASH_BYTES = 32


class TokenError(ValueError):
    """The text is not the hash of a token; says why."""


class Hash(NamedTuple):
    """A token as stored in the access file."""

    id: str
    log_n: int      # of scrypt, as r and p
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, token: bytes) -> bool:
        """Whether it is the hash of this token. Slow: do not call it on the event loop."""
        return hmac.compare_digest(_digest(token, self), self.digest)

    def __str__(self) -> str:
        return f"scrypt:{self.id}:{self.log_n}:{self.r}:{self.p}:{_text(self.salt)}:{_text(self.digest)}"


def make() -> tuple[str, Hash]:
    """Creates a token and its hash."""
    identity = os.urandom(ID_DIGITS // 2).hex()
    token = f"{PREFIX}{identity}_{_text(os.urandom(_SECRET_BYTES))}"
    unfinished = Hash(identity, _LOG_N, _R, _P, os.urandom(_SALT_BYTES), b"")
    return token, unfinished._replace(digest=_digest(token.encode(), unfinished))


def id_of(token: bytes) -> str | None:
    """The ID in a token; None: the text is not a token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1].decode()


def parse_hash(text: str) -> Hash:
    """Parses a hash from the access file. Raises TokenError, whose text reveals nothing of the hash."""
    match = _HASH.fullmatch(text)
    if match is None:
        raise TokenError("not the hash of a token; nsqc access token makes one")
    log_n, r, p = int(match[2]), int(match[3]), int(match[4])
    if not (_LEAST_LOG_N <= log_n <= _MOST_LOG_N and _R <= r <= 16 and 1 <= p <= 4):
        raise TokenError("its scrypt parameters are out of range; nsqc access token makes a hash")
    try:
        return Hash(match[1], log_n, r, p, _bytes(match[5]), _bytes(match[6]))
    except binascii.Error:
        raise TokenError("not the hash of a token; nsqc access token makes one") from None


def _digest(token: bytes, form: Hash) -> bytes:
    return hashlib.scrypt(token, salt=form.salt, n=1 << form.log_n, r=form.r, p=form.p, maxmem=_MOST_MEMORY,
                          dklen=_HASH_BYTES)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


# ====================================================================== rules

ANONYMOUS = "anonymous"
LIMITS = ("max_connections", "max_messages_per_second", "max_bytes_per_second", "max_topics")
MOST = 2**53
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_GLOB = re.compile(r"[A-Za-z0-9._#*?!\[\]-]+")
_USER_KEYS = ("tokens", "certificates", "roles", *GRANTS, *LIMITS)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AccessError(ValueError):
    """The access file cannot be used; the text is one line for the operator, without secrets."""


class Scope(NamedTuple):
    """The scope of a grant: topics and their channels."""

    text: str                           # TOPIC or TOPIC/CHANNEL, globs
    topic: re.Pattern[str]
    channel: re.Pattern[str] | None     # None: the topics themselves, and all of their channels
    source: str                         # origin of the grant: a user or a role

    @property
    def is_everything(self) -> bool:
        """Whether it covers everything."""
        return self.text == "*"

    def covers(self, topic: str, channel: str) -> bool:
        """Whether it covers the topic, or the channel where it is not empty."""
        if self.topic.match(topic) is None:
            return False
        return self.channel is None or (bool(channel) and self.channel.match(channel) is not None)


class Limits(NamedTuple):
    """One user's limits; 0: no limit."""

    connections: int = 0
    messages: int = 0       # published per second
    bytes: int = 0          # published per second
    topics: int = 0         # created


class User(NamedTuple):
    """A user, or everybody (ANONYMOUS)."""

    name: str
    scopes: Mapping[str, tuple[Scope, ...]]     # by grant
    tokens: tuple[Hash, ...] = ()
    certificates: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    limits: Limits = Limits()

    def reason(self, need: Need, topic: str = "", channel: str = "") -> str:
        """Describes the grant that permits a call; empty: none does."""
        for grant in need.grants:
            for scope in self.scopes.get(grant, ()):
                if is_met(scope, need.of, topic, channel):
                    return f"{scope.source}: {grant} {scope.text!r}"
        return ""


class Node(NamedTuple):
    """The topics that the nodes of a network may announce, and the addresses. addresses: None: any, but only those in
    the network are authorised."""

    network: Network
    topics: tuple[re.Pattern[str], ...]
    addresses: NodeHosts | None = None

    def admits(self, source: str, announced: str) -> bool:
        """Whether a node of this network may announce an address."""
        found = ip_of(source)
        return found is not None and found in self.network and (
            self.addresses is None or self.addresses.cover(announced))

    def authorises(self, announced: str) -> bool:
        """Whether the file vouches for an address that one of its nodes announces."""
        found = ip_of(announced)
        return self.addresses is not None or (found is not None and found in self.network)


class Rules(NamedTuple):
    """The content of an access file."""

    users: Mapping[str, User]
    anonymous: User | None
    tokens: Mapping[str, tuple[Hash, User]]     # by id
    certificates: Mapping[str, User]            # by common name
    nodes: tuple[Node, ...]

    # A node is known by the source of its connection, and announces an address as its own.

    def may_announce(self, source: str, announced: str, topic: str) -> bool:
        """Whether a node may announce a topic. Without nodes in the file, all may."""
        return not self.nodes or any(pattern.match(topic) for node in self._admitting(source, announced)
                                     for pattern in node.topics)

    def may_be_listed(self, source: str, announced: str) -> bool:
        """Whether a node may be listed at all. Without nodes in the file, all may."""
        return not self.nodes or bool(self._admitting(source, announced))

    def is_authorised(self, source: str, announced: str) -> bool:
        """Whether the file vouches for the address of a node."""
        return any(node.authorises(announced) for node in self._admitting(source, announced))

    def _admitting(self, source: str, announced: str) -> list[Node]:
        return [node for node in self.nodes if node.admits(source, announced)]


def is_met(scope: Scope, of: str, topic: str, channel: str) -> bool:
    """Whether a scope covers a call. A call that names no topic concerns all topics."""
    if of == NOTHING or scope.is_everything:
        return True
    if of == NODE or not topic:
        return False
    if of == PART:
        return scope.topic.match(topic) is not None
    return scope.covers(topic, channel if of == CHANNEL else "")


def read(path: str) -> Rules:
    """Reads the rules of a file. Raises AccessError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise AccessError(f"access file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AccessError(f"access file {path}: not UTF-8 at byte {error.start}") from None
    try:
        return parse(text)
    except TomlError as error:
        # The parser's text may quote the line, and a secret with it.
        line = re.search(r"at line \d+", str(error))
        raise AccessError(f"access file {path}: not TOML{f' {line[0]}' if line else ''}") from None
    except AccessError as error:
        raise AccessError(f"access file {path}: {error}") from None


def parse(text: str) -> Rules:
    """Parses the rules. Raises AccessError, TomlError."""
    tables = parse_toml(text)
    _refuse_unknown("", tables, (ANONYMOUS, "roles", "users", "nodes"))
    roles = {name: _role(name, table) for name, table in _tables(tables, "roles")}
    users: dict[str, User] = {}
    tokens: dict[str, tuple[Hash, User]] = {}
    certificates: dict[str, User] = {}
    for name, table in _tables(tables, "users"):
        user = users[name] = _user(name, table, roles)
        for token in user.tokens:
            if token.id in tokens:
                raise AccessError(f"users.{name}: a token with id {token.id} is also one of {tokens[token.id][1].name}")
            tokens[token.id] = token, user
        for certificate in user.certificates:
            if certificate in certificates:
                raise AccessError(f"users.{name}: certificate {certificate!r} is also one of "
                                  f"{certificates[certificate].name}")
            certificates[certificate] = user
    if ANONYMOUS in users:
        raise AccessError(f"users.{ANONYMOUS}: this name stands for clients without a token; "
                          f"write {ANONYMOUS} = [ROLE, ...]")
    anonymous = _user(ANONYMOUS, {"roles": tables[ANONYMOUS]}, roles) if ANONYMOUS in tables else None
    nodes = tuple(_node(name, table) for name, table in _tables(tables, "nodes", names=False))
    return Rules(users, anonymous, tokens, certificates, nodes)


def _tables(tables: Mapping[str, object], key: str, names: bool = True) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The tables below a key, with their names."""
    found = tables.get(key, {})
    if not isinstance(found, dict):
        raise AccessError(f"{key} must be tables such as [{key}.NAME]")
    for name, table in found.items():
        if names and not _NAME.fullmatch(name):
            raise AccessError(f"{key}.{name!r}: names have up to 64 letters, digits and . _ @ -")
        if not isinstance(table, dict):
            raise AccessError(f"{key}.{name} must be a table, [{key}.{name}]")
        yield name, table


def _refuse_unknown(place: str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise AccessError(f"{place}unknown key {key!r}; there are {', '.join(known)}")


def _texts(place: str, table: Mapping[str, object], key: str) -> tuple[str, ...]:
    """A list of texts; empty if missing."""
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise AccessError(f"{place}{key} must be a list of texts")
    return tuple(value)


def _role(name: str, table: Mapping[str, object]) -> dict[str, tuple[Scope, ...]]:
    _refuse_unknown(f"roles.{name}: ", table, GRANTS)
    return _scopes(f"roles.{name}: ", table, f"role {name}")


def _scopes(place: str, table: Mapping[str, object], source: str) -> dict[str, tuple[Scope, ...]]:
    return {grant: tuple(parse_scope(place, text, source) for text in _texts(place, table, grant))
            for grant in GRANTS if grant in table}


def parse_scope(place: str, text: str, source: str = "") -> Scope:
    """Parses TOPIC or TOPIC/CHANNEL. Raises AccessError."""
    topic, slash, channel = text.partition("/")
    for glob in (topic, channel) if slash else (topic,):
        if not _GLOB.fullmatch(glob):
            raise AccessError(f"{place}{text!r} is not TOPIC or TOPIC/CHANNEL, names or globs")
    return Scope(text, re.compile(translate(topic)), re.compile(translate(channel)) if slash else None, source)


def _user(name: str, table: Mapping[str, object], roles: Mapping[str, dict[str, tuple[Scope, ...]]]) -> User:
    place = f"users.{name}: "
    _refuse_unknown(place, table, _USER_KEYS)
    scopes = _scopes(place, table, f"user {name}")
    given = _texts(place, table, "roles")
    for role in given:
        if role not in roles:
            raise AccessError(f"{place}unknown role {role!r}")
        for grant, more in roles[role].items():
            scopes[grant] = scopes.get(grant, ()) + more
    hashes = []
    for number, text in enumerate(_texts(place, table, "tokens"), 1):
        try:
            hashes.append(parse_hash(text))
        except TokenError as error:
            raise AccessError(f"{place}token {number}: {error}") from None
    limits = Limits(*(_limit(place, table, key) for key in LIMITS))
    return User(name, scopes, tuple(hashes), _texts(place, table, "certificates"), given, limits)


def _limit(place: str, table: Mapping[str, object], key: str) -> int:
    value = table.get(key, 0)
    if type(value) is not int or not 0 <= value <= MOST:
        raise AccessError(f"{place}{key} must be a non-negative integer (0: no limit)")
    return value


def _node(name: str, table: Mapping[str, object]) -> Node:
    place = f"nodes.{name!r}: "
    _refuse_unknown(place, table, ("topics", "addresses"))
    try:
        network = ipaddress.ip_network(name)
    except ValueError:
        raise AccessError(f"{place}not an address or a network such as 10.1.0.0/16") from None
    scopes = [parse_scope(place, text) for text in _texts(place, table, "topics")]
    if any(scope.channel is not None for scope in scopes):
        raise AccessError(f"{place}topics have no channels")
    try:
        addresses = NodeHosts(_texts(place, table, "addresses")) if "addresses" in table else None
    except ValueError as error:
        raise AccessError(f"{place}addresses: {error}") from None
    return Node(network, tuple(scope.topic for scope in scopes), addresses)
