"""Places in a log as clients write them: offsets, times, `beginning` and `end`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.httpd.app import App
from nsqc.httpd.reply import JSON, ApiError, Reply, encoded
from nsqc.options.places import MOST, moment_of
from nsqc.options.places import number_of as number_of_text
from nsqc.wire.names import is_valid_name

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic
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


def invalid(key: bytes) -> ApiError:
    """The refusal of an argument's value."""
    return ApiError(400, f"INVALID_ARG_{key.decode().upper()}")


def time_of(arguments: dict[bytes, bytes], key: bytes) -> int | None:
    """A time, in ns since 1970: such a number, RFC 3339, or how long ago; None: there is none."""
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
    """An argument as text. Bytes that are not ASCII become replacement characters, which no place contains."""
    return text.decode("ascii", "replace")


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
