"""GET and PUT /topic/rules and /channel/rules: the rules of topics and channels, which need not exist; and /rules: the
tables of rules, for names that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqc.httpd.app import MOST_RULES, MOST_TABLES, App
from nsqc.httpd.reply import ApiError, Request, check_publish, read_whole
from nsqc.options.declared import RuleTable, RuleValue
from nsqc.options.rule_tables import BY_KEY, LIMIT_FLAGS, Scope, json_value
from nsqc.options.rules import (
    KEYS,
    Changes,
    Rules,
    RuleT,
    Way,
    circle,
    circle_in,
    declare,
    digest_of,
    from_json,
    ways_from,
)
from nsqc.wire.outside import Decoder, Json, JSONError
from nsqc.wire.parser import is_valid_name

_decode = Decoder(dict[str, object]).decode
_decode_tables = Decoder(dict[str, dict[str, dict[str, object]]]).decode


def get_all(app: App, request: Request) -> Json:
    """The tables declared by PUT, those of the config file, the defaults by options, and the values set for single
    names."""
    of = (app.rules, app.channel_rules)
    now = app.settings.now
    return {"digest": digest_of([rules.digest for rules in of]),
            **{rules.scope.key: _tables(rules.scope, rules.declared) for rules in of},
            "config": {rules.scope.key: _tables(rules.scope, getattr(now, rules.scope.key)) for rules in of},
            "defaults": {rules.scope.key: {"*": _values(rules.scope, rules.defaults)}
                         for rules in of if rules.defaults},
            "set": {rules.scope.key: {name.decode(): _values(rules.scope, values)
                                      for name, values in sorted(rules.set_by_name().items())} for rules in of}}


async def put_all(app: App, request: Request) -> Json:
    """Replaces the declared tables of topics and channels. Answers once they are on disk."""
    if max(request.length, len(request.body)) > MOST_TABLES:
        raise ApiError(413, "BODY_TOO_BIG")
    try:
        given = _decode_tables(request.body)
        if unknown := given.keys() - BY_KEY.keys():
            raise ValueError(f"unknown key {min(unknown)!r}, known are {', '.join(BY_KEY)}")
        topics, channels = (declare(scope, given.get(scope.key, {})) for scope in BY_KEY.values())
    except JSONError as error:
        raise ApiError(400, f"the body cannot be used - {error}") from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None
    now = app.settings.now
    _check_bucket(app, [(table.title, table.values) for table in topics])
    if (found := circle_in((*topics, *now.topics), (*channels, *now.channels))) is not None:
        raise ApiError(400, f"DEAD_LETTERS_CIRCLE - {found[0].title}: {found[1]}")
    for table in (*topics, *channels):
        if KEYS & table.values.keys():
            # Without a name, letters go to the matching topics, each with .dead appended.
            check_publish(request, str(table.values.get("dead_letter", "")) or "*")
    try:
        await app.rules.declare(topics)
        await app.channel_rules.declare(channels)
    except OSError as error:
        raise ApiError(500, f"failed to write the rules - {error.strerror}") from None
    return get_all(app, request)


def _tables(scope: Scope, tables: Sequence[RuleTable]) -> Json:
    return {table.glob: _values(scope, table.values) for table in tables}


def _values(scope: Scope, values: Mapping[str, RuleValue]) -> Json:
    return {key: json_value(scope.flags[key].kind, value) for key, value in values.items()}


def get_rules(app: App, request: Request) -> Json:
    """The rule of a topic, and its source."""
    name = _name(read_whole(app.log, request), "topic")
    return _answer(app.rules, name, app.rules.of(name))


async def put_rules(app: App, request: Request) -> Json:
    """Sets some keys of a topic's rule; null undoes an earlier PUT. Answers once it is on disk."""
    _check_size(request)
    name = _name(read_whole(app.log, request), "topic")
    if not app.rules.scope.can_have(name):
        raise ApiError(400, f"topic = {name.decode()}: ephemeral topics are always kept in memory")
    changes = _changes(app.rules, request)
    _check_bucket(app, [(f"topic {name.decode()}", changes)])
    if changes.keys() & LIMIT_FLAGS.keys():
        ways = ways_from(name, app.channel_rules.of_topic(name, app.rules.after(name, changes)))
        _check_ways(app, request, name, list(ways))
    return await _put(app.rules, name, changes)


def get_channel_rules(app: App, request: Request) -> Json:
    """The rule of a channel, and its source."""
    name = _channel(app, request)
    return _answer(app.channel_rules, name, app.channel_rules.of(name))


async def put_channel_rules(app: App, request: Request) -> Json:
    """Sets some keys of a channel's rule; null undoes an earlier PUT. Answers once it is on disk."""
    _check_size(request)
    name = _channel(app, request)
    if not app.channel_rules.scope.can_have(name):
        raise ApiError(400, f"{name.decode()} is ephemeral: its rules are those of the config file, in a table such as "
                       f'[channels."{name.decode()}"]')
    changes, topic = _changes(app.channel_rules, request), name.partition(b"/")[0]
    if changes.keys() & KEYS:
        ways = list(ways_from(topic, [(name.decode(), app.channel_rules.after(name, changes))]))
        if not ways and (named := changes.get("dead_letter")):
            check_publish(request, str(named))      # another rule may use it later
        _check_ways(app, request, topic, ways)
    return await _put(app.channel_rules, name, changes)


def _check_ways(app: App, request: Request, topic: bytes, ways: list[Way]) -> None:
    """Raises ApiError if the client may not publish where dead letters of the topic would go, or if they would circle.
    """
    for way in ways:
        check_publish(request, way.target.decode())
        if text := circle(topic, way, app.channel_rules.of_topic):
            raise ApiError(400, f"DEAD_LETTERS_CIRCLE - {text}")


def _check_bucket(app: App, rules: list[tuple[str, Changes]]) -> None:
    """Raises ApiError if a rule of topics, with its title, needs a bucket that this node does not have."""
    for fault in app.settings.now.lacks_bucket(rules):
        raise ApiError(400, fault)


def _check_size(request: Request) -> None:
    if max(request.length, len(request.body)) > MOST_RULES:
        raise ApiError(413, "BODY_TOO_BIG")


def _changes(rules: Rules[RuleT], request: Request) -> Changes:
    """The body of a PUT."""
    try:
        return {key: from_json(rules.scope, key, value) for key, value in _decode(request.body).items()}
    except JSONError as error:
        raise ApiError(400, f"the body cannot be used - {error}") from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None


async def _put(rules: Rules[RuleT], name: bytes, changes: Changes) -> Json:
    try:
        return _answer(rules, name, await rules.set(name, changes))
    except OSError as error:
        raise ApiError(500, f"failed to write {rules.scope.file} - {error.strerror}") from None


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


def _answer(rules: Rules[RuleT], name: bytes, rule: RuleT) -> Json:
    """A rule for clients; durations as text."""
    values = {key: json_value(declared.kind, getattr(rule, key)) for key, declared in rules.scope.flags.items()}
    return {**dict(zip(("topic", "channel"), name.decode().split("/"), strict=False)), **values, "source": rule.source}
