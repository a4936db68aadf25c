"""Places in a log as clients write them: offsets, times, `beginning` and `end`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nsqc.httpd.app import App
from nsqc.httpd.reply import JSON, ApiError, Reply, encoded
from nsqc.wire.names import is_valid_name

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic
    from nsqc.store.log.topiclog import TopicLog

_MOST = 2**63 - 1
_NUMBER = re.compile(rb"[0-9]{1,19}")
# RFC 3339. A plus sign that was not escaped has become a space.
_TIME = re.compile(rb"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
                   rb"(?:[Zz]|([-+ ])([0-9]{2}):([0-9]{2}))")
_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def number_of(arguments: dict[bytes, bytes], key: bytes, default: int, least: int = 0, most: int = _MOST) -> int:
    """A whole number within bounds."""
    text = arguments.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not least <= (number := int(text)) <= most:
        raise invalid(key)
    return number


def invalid(key: bytes) -> ApiError:
    """The refusal of an argument's value."""
    return ApiError(400, f"INVALID_ARG_{key.decode().upper()}")


def time_of(arguments: dict[bytes, bytes], key: bytes) -> int | None:
    """A time, in ns since 1970: such a number, or RFC 3339; None: there is none."""
    text = arguments.get(key)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) and int(text) <= _MOST:
        return int(text)
    time = rfc3339(text)
    if time is None:
        raise invalid(key)
    return time


def rfc3339(text: bytes) -> int | None:
    """A time as ns since 1970, 0 for those before; None: it is not a time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, hours, minutes = match.groups()[6:]
    if second > 60 or (sign and (int(hours) > 23 or int(minutes) > 59)):
        return None
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((whole - _EPOCH).total_seconds()) + second // 60      # a leap second is the next minute's first
    if sign:
        ahead = int(hours) * 3600 + int(minutes) * 60
        seconds += ahead if sign == b"-" else -ahead
    return min(max(seconds * _SECOND_NS + int((fraction or b"0").ljust(9, b"0")), 0), _MOST)


# ---------------------------------------------------------------------- topics and logs

def named(app: App, arguments: dict[bytes, bytes]) -> Topic:
    """The existing topic that the arguments name."""
    name = arguments.get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_ARG_TOPIC")
    topic = app.broker.topic(name)
    if topic is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    return topic


def log_of(topic: Topic) -> TopicLog:
    """The topic's log; refuses topics that have none."""
    if topic.exiting:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    if topic.log is None:
        name = topic.name.decode()
        if topic.ephemeral:
            raise ApiError(400, f"NO_LOG: {name} is ephemeral; such topics stay in memory")
        raise ApiError(400, f'NO_LOG: {name} is kept in memory; its rule has to say storage = "log" (PUT /topic/rules, '
                            f'[topics."{name}"] in the config file, or --topic-storage=log)')
    return topic.log


def gone(log: TopicLog) -> Reply:
    """The answer for an offset that retention has removed."""
    first = log.first
    return Reply(410, encoded({"message": "OFFSET_GONE", "first_offset": first}), JSON, nsq=True,
                 extra=f"X-NSQ-First-Offset: {first}\r\n")


def beyond(log: TopicLog) -> Reply:
    """The answer for an offset behind the end."""
    following = log.following
    return Reply(416, encoded({"message": "OFFSET_BEYOND_END", "next_offset": following}), JSON, nsq=True,
                 extra=f"X-NSQ-Next-Offset: {following}\r\n")
