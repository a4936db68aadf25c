"""nsqc.rules.json: what PUT /topic/rules has set, for each topic. nsqd ignores it.

    {"topics": {"NAME": {"storage": "log", "retain_time": 3600000000000}}}

Durations are nanoseconds there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nsqc.log import Log
from nsqc.options.declared import FLAGS, RULE_KEYS, Kind
from nsqc.options.durations import parse_duration
from nsqc.options.topic_tables import in_range, unknown_key
from nsqc.store.badfiles import set_aside
from nsqc.store.files import read_edited_file, replace_file
from nsqc.wire.names import is_ephemeral, is_valid_name
from nsqc.wire.outside import Decoder, JSONError

NAME = "nsqc.rules.json"
NOT_FILES = (errno.EINVAL, errno.EISDIR, errno.ENXIO)  # what reading something else than a file fails with

Values: TypeAlias = Mapping[str, str | int]  # by key of a rule
Changes: TypeAlias = Mapping[str, str | int | None]  # None: as if it had not been set

_encode = msgspec.json.Encoder().encode


class _File(msgspec.Struct):
    """The whole file."""

    topics: dict[str, dict[str, object]]


_decode = Decoder(_File).decode


# ---------------------------------------------------------------------- values


def from_json(key: str, given: object) -> str | int | None:
    """The value of a key in JSON: null, or as the rule has it; durations are text or nanoseconds. Raises ValueError
    that names key and value."""
    if key not in RULE_KEYS:
        raise ValueError(unknown_key(key))
    if given is None:
        return None
    kind = FLAGS[RULE_KEYS[key]].kind
    value = given
    try:
        if kind is Kind.DURATION and isinstance(given, str):
            value = parse_duration(given)
        if kind in (Kind.DURATION, Kind.INT):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError("a duration such as \"36h\", or nanoseconds, is expected" if kind is Kind.DURATION
                                 else "an integer is expected")
        elif not isinstance(value, str) or value not in kind.value.split("|"):
            raise ValueError(f"one of {', '.join(kind.value.split('|'))} is expected")
        return in_range(key, value)
    except ValueError as error:
        raise ValueError(f"{key} = {_shown(given)} cannot be used - {error}") from None


def _shown(given: object) -> str:
    """A value of JSON as it was sent; the beginning of a long one."""
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
    """A topic in the file; names contain nothing that JSON escapes."""
    return b'"%b":%b' % (name, _encode(values))


def save(data_path: str, pieces: list[bytes]) -> None:
    """Replaces the file, durably. Raises OSError."""
    replace_file(os.path.join(data_path, NAME), b'{"topics":{%b}}\n' % b",\n".join(pieces))


def load(data_path: str, log: Log) -> dict[bytes, Values]:
    """What the file says. If any of it cannot be used, the file is kept as .bad, and replaced by the rest.

    Raises OSError if it exists and cannot be read, or cannot be replaced: without the rules, topics would be kept in
    another way than was asked for.
    """
    path = os.path.join(data_path, NAME)
    rules: dict[bytes, Values] = {}
    problems: list[str] = []
    try:
        entries = _decode(read_edited_file(path)).topics
    except FileNotFoundError:
        return {}
    except JSONError as error:
        entries = {}
        problems.append(str(error))
    except OSError as error:
        if error.errno not in NOT_FILES:
            raise
        entries = {}
        problems.append("it is not a file")
    for text, given in entries.items():
        name = text.encode("utf-8", "replace")
        try:
            if not is_valid_name(name) or is_ephemeral(name):
                raise ValueError("no topic of that name can have a rule")
            rules[name] = merged({}, {key: from_json(key, value) for key, value in given.items()})
        except ValueError as error:
            problems.append(f"{text[:64]!r}: {error}")
    if problems:
        backup = set_aside(path)
        log.error("RULES: %s is damaged (%s%s): kept as %s, %d rules remain", path, problems[0],
                  f" and {len(problems) - 1} more" if problems[1:] else "", backup, len(rules))
        save(data_path, [piece(name, values) for name, values in rules.items()])
    return rules
