"""Positions in a log, as clients write them: offsets, times, `beginning` and `end`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.httpd.naming import invalid
from nsqc.httpd.reply import JSON, Reply, encoded
from nsqc.options.places import MOST, moment_of
from nsqc.options.places import number_of as number_of_text

if TYPE_CHECKING:
    from nsqc.store.log.topiclog import TopicLog


def number_of(arguments: dict[bytes, bytes], key: bytes, default: int, least: int = 0, most: int = MOST) -> int:
    """A whole number within bounds."""
    text = arguments.get(key)
    if text is None:
        return default
    number = number_of_text(written(text))
    if number is None or not least <= number <= most:
        raise invalid(key)
    return number


def time_of(arguments: dict[bytes, bytes], key: bytes) -> int | None:
    """A time, in ns since 1970: such a number, RFC 3339, or an age; None: missing."""
    text = arguments.get(key)
    if text is None:
        return None
    words = written(text)
    moment = number_of_text(words)
    if moment is None:
        moment = moment_of(words)
    if moment is None:
        raise invalid(key)
    return moment


def written(text: bytes) -> str:
    """An argument as text. Non-ASCII bytes become replacement characters, which are invalid in positions."""
    return text.decode("ascii", "replace")


def gone(log: TopicLog) -> Reply:
    """The answer for an offset that retention removed."""
    first = log.first
    return Reply(410, encoded({"message": "OFFSET_GONE", "first_offset": first}), JSON, nsq=True,
                 extra=f"X-NSQ-First-Offset: {first}\r\n")


def beyond(log: TopicLog) -> Reply:
    """The answer for an offset after the end."""
    following = log.following
    return Reply(416, encoded({"message": "OFFSET_BEYOND_END", "next_offset": following}), JSON, nsq=True,
                 extra=f"X-NSQ-Next-Offset: {following}\r\n")
