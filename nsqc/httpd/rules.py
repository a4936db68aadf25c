"""GET and PUT /topic/rules and /channel/rules: the rules of topics and channels, which need not exist."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nsqc.httpd.app import MOST_RULES, App
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_whole
from nsqc.options.channel_keys import CHANNEL_FLAGS, ChannelRule, json_value
from nsqc.options.declared import RuleValue
from nsqc.options.durations import format_duration
from nsqc.options.rule_scopes import CHANNELS, TOPICS, Scope
from nsqc.options.rules_file import Changes, from_json
from nsqc.options.topic_rules import TopicRule
from nsqc.wire.names import is_ephemeral, is_valid_name
from nsqc.wire.outside import Decoder, JSONError

_decode = Decoder(dict[str, object]).decode


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """A rule as clients see it; durations as text."""

    topic: str
    storage: str
    sync: str
    retain_time: str
    retain_bytes: int
    overflow: str
    message_ttl: str
    expired: str
    max_depth: int
    max_bytes: int
    dedupe: str
    dedupe_ids: int
    source: str


def get_rules(app: App, request: Request) -> _Answer:
    """The rule of a topic, and where it comes from."""
    name = _name(read_whole(app.log, request), "topic")
    return _answer(name, app.rules.of(name))


async def put_rules(app: App, request: Request) -> _Answer:
    """Sets some keys of a topic's rule; null undoes an earlier PUT. Answers once it is on disk."""
    _check_size(request)
    name = _name(read_whole(app.log, request), "topic")
    if is_ephemeral(name):
        raise ApiError(400, f"topic = {name.decode()}: ephemeral topics are always kept in memory")
    changes = _changes(TOPICS, request)
    try:
        return _answer(name, await app.rules.set(name, changes))
    except OSError as error:
        raise _not_written(TOPICS, error) from None


def get_channel_rules(app: App, request: Request) -> Mapping[str, RuleValue]:
    """The rule of a channel, and where it comes from."""
    name = _channel(app, request)
    return _channel_answer(name, app.channel_rules.of(name))


async def put_channel_rules(app: App, request: Request) -> Mapping[str, RuleValue]:
    """Sets some keys of a channel's rule; null undoes an earlier PUT. Answers once it is on disk."""
    _check_size(request)
    name = _channel(app, request)
    if not CHANNELS.can_have(name):
        raise ApiError(400, f"{name.decode()} is ephemeral: its rules are those of the config file, in a table such as "
                       f'[channels."{name.decode()}"]')
    changes = _changes(CHANNELS, request)
    try:
        return _channel_answer(name, await app.channel_rules.set(name, changes))
    except OSError as error:
        raise _not_written(CHANNELS, error) from None


def _check_size(request: Request) -> None:
    if max(request.length, len(request.body)) > MOST_RULES:
        raise ApiError(413, "BODY_TOO_BIG")


def _changes(scope: Scope, request: Request) -> Changes:
    try:
        return {key: from_json(scope, key, value) for key, value in _decode(request.body).items()}
    except JSONError as error:
        raise ApiError(400, f"the body cannot be used - {error}") from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None


def _not_written(scope: Scope, error: OSError) -> ApiError:
    return ApiError(500, f"failed to write {scope.file} - {error.strerror}")


def _name(arguments: Mapping[bytes, bytes], noun: str) -> bytes:
    name = arguments.get(noun.encode())
    if name is None:
        raise ApiError(400, f"MISSING_ARG_{noun.upper()}")
    if not is_valid_name(name):
        raise ApiError(400, f"INVALID_{noun.upper()}")
    return name


def _channel(app: App, request: Request) -> bytes:
    arguments = read_whole(app.log, request)
    return _name(arguments, "topic") + b"/" + _name(arguments, "channel")


def _answer(name: bytes, rule: TopicRule) -> _Answer:
    return _Answer(name.decode(), rule.storage, rule.sync, format_duration(rule.retain_time), rule.retain_bytes,
                   rule.overflow, format_duration(rule.message_ttl), rule.expired, rule.max_depth, rule.max_bytes,
                   format_duration(rule.dedupe), rule.dedupe_ids, rule.source)


def _channel_answer(name: bytes, rule: ChannelRule) -> Mapping[str, RuleValue]:
    topic, _, channel = name.decode().partition("/")
    values = {key: json_value(declared.kind, getattr(rule, key)) for key, declared in CHANNEL_FLAGS.items()}
    return {"topic": topic, "channel": channel, **values, "source": rule.source}
