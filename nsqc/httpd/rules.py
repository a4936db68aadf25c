"""GET and PUT /topic/rules: how a topic is kept. The topic need not exist."""

from __future__ import annotations

import msgspec

from nsqc.httpd.app import MOST_RULES, App
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_whole
from nsqc.options.durations import format_duration
from nsqc.options.rules_file import NAME, from_json
from nsqc.options.topic_rules import TopicRule
from nsqc.wire.names import is_ephemeral, is_valid_name
from nsqc.wire.outside import Decoder, JSONError

_decode = Decoder(dict[str, object]).decode


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """A rule as clients see it; retain_time as text."""

    topic: str
    storage: str
    sync: str
    retain_time: str
    retain_bytes: int
    overflow: str
    source: str


def get_rules(app: App, request: Request) -> _Answer:
    """The rule of a topic, and where it comes from."""
    name = _topic_name(app, request)
    return _answer(name, app.rules.of(name))


async def put_rules(app: App, request: Request) -> _Answer:
    """Sets some keys of a topic's rule; null takes back what an earlier PUT has set. Answers once it is on disk."""
    if max(request.length, len(request.body)) > MOST_RULES:
        raise ApiError(413, "BODY_TOO_BIG")
    name = _topic_name(app, request)
    if is_ephemeral(name):
        raise ApiError(400, f"topic = {name.decode()}: ephemeral topics are always kept in memory")
    try:
        given = _decode(request.body)
        changes = {key: from_json(key, value) for key, value in given.items()}
    except JSONError as error:
        raise ApiError(400, f"the body cannot be used - {error}") from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None
    try:
        return _answer(name, await app.rules.set(name, changes))
    except OSError as error:
        raise ApiError(500, f"failed to write {NAME} - {error.strerror}") from None


def _topic_name(app: App, request: Request) -> bytes:
    name = read_whole(app.log, request).get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    return name


def _answer(name: bytes, rule: TopicRule) -> _Answer:
    return _Answer(name.decode(), rule.storage, rule.sync, format_duration(rule.retain_time), rule.retain_bytes,
                   rule.overflow, rule.source)
