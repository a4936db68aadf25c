"""nsqc.rules.json and nsqc.channel-rules.json: the values set by PUT, for each topic and channel. nsqd ignores them.

    {"topics": {"NAME": {"storage": "log", "retain_time": 3600000000000}}}
    {"channels": {"TOPIC/CHANNEL": {"requeue_delay": 1000000000}}}

Durations are nanoseconds there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nsqc.log import Log
from nsqc.options.declared import RuleValue
from nsqc.options.durations import parse_duration
from nsqc.options.option import Kind
from nsqc.options.rule_scopes import Scope
from nsqc.options.rule_tables import in_range, unknown_key
from nsqc.options.values import parse_topic
from nsqc.store.badfiles import set_aside
from nsqc.store.files import read_edited_file, replace_file
from nsqc.wire.outside import Decoder, JSONError

NOT_FILES = (errno.EINVAL, errno.EISDIR, errno.ENXIO)  # errors of reading something other than a file

Values: TypeAlias = Mapping[str, RuleValue]  # by key of a rule
Changes: TypeAlias = Mapping[str, RuleValue | None]  # None: resets the key

EXPECTED = {Kind.DURATION: 'a duration such as "36h", or nanoseconds,', Kind.INT: "an integer", Kind.FLOAT: "a number"}

_encode = msgspec.json.Encoder().encode


_decode = Decoder(dict[str, dict[str, dict[str, object]]]).decode


# ---------------------------------------------------------------------- values


def from_json(scope: Scope, key: str, given: object) -> RuleValue | None:
    """The value of a key in JSON: null, or in the rule's form; durations are text or nanoseconds. Raises ValueError
    that names key and value."""
    if key not in scope.flags:
        raise ValueError(unknown_key(scope, key))
    if given is None:
        return None
    try:
        return in_range(scope, key, _of_kind(scope.flags[key].kind, given))
    except ValueError as error:
        raise ValueError(f"{key} = {_shown(given)} cannot be used - {error}") from None


def _of_kind(kind: Kind, given: object) -> RuleValue:
    """A JSON value as one of that kind. Raises ValueError that states the expected form."""
    value = parse_duration(given) if kind is Kind.DURATION and isinstance(given, str) else given
    if kind is Kind.BOOL:
        if isinstance(value, bool):
            return value
        raise ValueError("true or false is expected")
    if kind is Kind.TOPIC:
        if isinstance(value, str):
            return parse_topic(value)
        raise ValueError("the name of a topic is expected")
    if kind in EXPECTED:
        wanted = (int, float) if kind is Kind.FLOAT else (int,)
        if isinstance(value, wanted) and not isinstance(value, bool):
            return float(value) if kind is Kind.FLOAT else value
        raise ValueError(f"{EXPECTED[kind]} is expected")
    if isinstance(value, str) and value in kind.value.split("|"):
        return value
    raise ValueError(f"one of {', '.join(kind.value.split('|'))} is expected")


def _shown(given: object) -> str:
    """A JSON value as it was sent, truncated if long."""
    try:
        text = _encode(given).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = repr(type(given).__name__)
    return text if len(text) <= 100 else f"{text[:100]}..."


def merged(values: Values, changes: Changes) -> Values:
    """The values after the changes."""
    return {key: value for key, value in {**values, **changes}.items() if value is not None}


# ---------------------------------------------------------------------- the file


def piece(name: bytes, values: Values) -> bytes:
    """A topic or channel in the file; names contain nothing that JSON escapes."""
    return b'"%b":%b' % (name, _encode(values))


def save(data_path: str, scope: Scope, pieces: list[bytes]) -> None:
    """Replaces the file, durably. Raises OSError."""
    replace_file(os.path.join(data_path, scope.file), b'{"%b":{%b}}\n' % (scope.key.encode(), b",\n".join(pieces)))


def load(data_path: str, scope: Scope, log: Log) -> dict[bytes, Values]:
    """Reads the file. If any of it is unusable, the file is kept as .bad, and replaced by the rest.

    Raises OSError if it exists and cannot be read, or cannot be replaced: without the rules, topics would be stored in
    another way than requested.
    """
    path = os.path.join(data_path, scope.file)
    rules: dict[bytes, Values] = {}
    problems: list[str] = []
    try:
        entries = _decode(read_edited_file(path))[scope.key]
    except FileNotFoundError:
        return {}
    except JSONError as error:
        entries = {}
        problems.append(str(error))
    except KeyError:
        entries = {}
        problems.append(f"it has no {scope.key}")
    except OSError as error:
        if error.errno not in NOT_FILES:
            raise
        entries = {}
        problems.append("it is not a file")
    for text, given in entries.items():
        name = text.encode("utf-8", "replace")
        try:
            if not scope.can_have(name):
                raise ValueError(f"no {scope.noun} of that name can have a rule")
            rules[name] = merged({}, {key: from_json(scope, key, value) for key, value in given.items()})
        except ValueError as error:
            problems.append(f"{text[:64]!r}: {error}")
    if problems:
        backup = set_aside(path)
        log.error("RULES: %s is damaged (%s%s): kept as %s, %d rules remain", path, problems[0],
                  f" and {len(problems) - 1} more" if problems[1:] else "", backup, len(rules))
        save(data_path, scope, [piece(name, values) for name, values in rules.items()])
    return rules
