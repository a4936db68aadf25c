"""A client's permissions by an auth server: its answer, checked and with its expressions compiled."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from nsqc.peers.patterns import Pattern, PatternError, compiled
from nsqc.wire.outside import Decoder

LONGEST_TTL_S = 2**31  # longer ones make no practical difference
PERMISSIONS = frozenset({"subscribe", "publish"})


class AuthorizationReply(msgspec.Struct, gc=False):
    """One authorization as a server writes it; null counts as absent."""

    topic: str | None = None
    channels: list[str] | None = None
    permissions: list[str] | None = None


class Reply(msgspec.Struct):
    """A server's answer."""

    ttl: int | None = None
    authorizations: list[AuthorizationReply] | None = None
    identity: str | None = None
    identity_url: str | None = None


Decoder(Reply)  # so that no two threads are the first to use the types
_decode = Decoder(object).decode


class Rule(NamedTuple):
    """One authorization."""

    permissions: frozenset[str]
    topic: Pattern
    channels: tuple[Pattern, ...]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        return (permission in self.permissions and self.topic.matches(topic)
                and any(pattern.matches(channel) for pattern in self.channels))


class Grant(NamedTuple):
    """A client's permissions, valid for ttl_s seconds after the answer."""

    ttl_s: int
    identity: str
    identity_url: str
    rules: tuple[Rule, ...]

    def allows(self, topic: str, channel: str) -> bool:
        """Subscribing to the channel, or publishing if channel is empty. As in nsqd, one of the channel expressions
        must then match the empty name."""
        permission = "subscribe" if channel else "publish"
        return any(rule.allows(permission, topic, channel) for rule in self.rules)


def interpret(body: bytes, anchored: bool) -> Grant:
    """Parses a server's answer. Raises ValueError."""
    reply = msgspec.convert(fold_keys(_decode(body)), Reply)
    rules = tuple(rule_of(authorization, anchored) for authorization in reply.authorizations or ())
    ttl_s = reply.ttl or 0
    if ttl_s <= 0:
        raise ValueError(f"invalid TTL {ttl_s} (must be >0)")
    return Grant(min(ttl_s, LONGEST_TTL_S), reply.identity or "", reply.identity_url or "", rules)


def fold_keys(value: object) -> object:
    """An answer with the keys of its fields in lower case: nsqd's JSON decoder ignores their case.

    Converts only the two levels of Reply, without recursion: unknown fields may be nested to any depth.
    """
    answer = lower_keys(value)
    if isinstance(answer, dict) and isinstance(answer.get("authorizations"), list):
        answer["authorizations"] = [lower_keys(item) for item in answer["authorizations"]]
    return answer


def lower_keys(value: object) -> object:
    """An object with its own keys in lower case; any other value unchanged."""
    return {key.lower(): item for key, item in value.items()} if isinstance(value, dict) else value


def rule_of(authorization: AuthorizationReply, anchored: bool) -> Rule:
    """Checks an authorization. Raises ValueError."""
    permissions = frozenset(authorization.permissions or ())
    for unknown in sorted(permissions - PERMISSIONS):
        raise ValueError(f"unknown permission {unknown}")
    return Rule(permissions, pattern_of("topic", authorization.topic or "", anchored),
                tuple(pattern_of("channel", text, anchored) for text in authorization.channels or ()))


def pattern_of(what: str, text: str, anchored: bool) -> Pattern:
    """Compiles an expression; `what` goes into the error. Raises ValueError."""
    try:
        return compiled(text, anchored)
    except PatternError as error:
        raise ValueError(f"unable to compile {what} {text!r} {error}") from None
