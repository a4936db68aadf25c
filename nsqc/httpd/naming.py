"""Topics and channels named by requests, and the logs of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.httpd.app import App
from nsqc.httpd.reply import ApiError
from nsqc.wire.names import is_valid_name

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.store.log.topiclog import TopicLog

Arguments = dict[bytes, bytes]


def invalid(key: bytes) -> ApiError:
    """Refuses an argument's value."""
    return ApiError(400, f"INVALID_ARG_{key.decode().upper()}")


def name_in(arguments: Arguments, key: bytes) -> bytes:
    """The name of a topic or channel. Raises ApiError if it is missing or invalid."""
    name = arguments.get(key)
    if name is None:
        raise ApiError(400, f"MISSING_ARG_{key.decode().upper()}")
    if not is_valid_name(name):
        raise invalid(key)
    return name


def existing(app: App, name: bytes) -> Topic:
    """The topic of this name. Raises ApiError."""
    topic = app.broker.topic(name)
    if topic is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    return topic


def existing_channel(topic: Topic, name: bytes) -> Channel:
    """The topic's channel of this name. Raises ApiError."""
    channel = topic.channel(name)
    if channel is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return channel


def named(app: App, arguments: Arguments) -> Topic:
    """The existing topic named by the arguments. Raises ApiError."""
    return existing(app, name_in(arguments, b"topic"))


def topic_and_channel(app: App, arguments: Arguments) -> tuple[Topic, bytes]:
    """An existing topic, and the name of a channel that need not exist. Names are checked first. Raises ApiError."""
    topic, channel = name_in(arguments, b"topic"), name_in(arguments, b"channel")
    return existing(app, topic), channel


def log_of(topic: Topic) -> TopicLog:
    """The topic's log. Raises ApiError if it has none."""
    if topic.exiting:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    if topic.log is None:
        name = topic.name.decode()
        if topic.ephemeral:
            raise ApiError(400, f"NO_LOG: {name} is ephemeral; such topics stay in memory")
        raise ApiError(400, f'NO_LOG: {name} is kept in memory; its rule has to say storage = "log" (PUT /topic/rules, '
                            f'[topics."{name}"] in the config file, or --topic-storage=log)')
    return topic.log
