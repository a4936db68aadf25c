"""Topic and channel calls: create, delete, empty, pause, unpause. Error words and the order of checks are nsqd's, with
its differences between calls: only some of them look at whether a name is valid before they look for its topic.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from nsqc.httpd.publish import wanted_topic
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_arguments, read_whole
from nsqc.wire.names import is_valid_name


def create_topic(app: Any, request: Request) -> None:
    """Makes the topic, or leaves it."""
    wanted_topic(app, read_arguments(app, request))


def delete_topic(app: Any, request: Request) -> Awaitable[None]:
    """Deletes the topic with its channels and messages; off the disk before it is answered."""
    topic = _existing(app, _topic_name(app, request))
    app.broker.delete_topic(topic.name)
    gone = asyncio.get_running_loop().create_future()
    topic.when_gone(lambda: gone.done() or gone.set_result(None))
    return _deleted(app, topic, topic.ephemeral, gone)


async def _deleted(app: Any, topic: Any, ephemeral: bool, gone: "asyncio.Future[None] | None" = None) -> None:
    """Waits until no kill brings back what was deleted. Where that cannot be written, the log says so."""
    if gone is not None:
        await gone
    if not ephemeral:
        await app.broker.removed()
        with contextlib.suppress(OSError):
            await app.broker.save_metadata(topic)


def empty_topic(app: Any, request: Request) -> Awaitable[None] | None:
    """Drops the messages that the topic has not passed to its channels; off the disk before it is answered."""
    name = _topic_name(app, request)
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    return _emptied(app, _existing(app, name))


def _emptied(app: Any, queue: Any) -> Awaitable[None] | None:
    queue.empty()
    return None if queue.disk is None else app.broker.emptied(queue)


async def pause_topic(app: Any, request: Request) -> None:
    """Holds the topic's messages back from its channels; on disk before it is answered."""
    topic = _existing(app, _topic_name(app, request))
    topic.pause()
    await app.broker.save_metadata(topic)


async def unpause_topic(app: Any, request: Request) -> None:
    """Ends pause_topic; on disk before it is answered."""
    topic = _existing(app, _topic_name(app, request))
    topic.unpause()
    await app.broker.save_metadata(topic)


def create_channel(app: Any, request: Request) -> None:
    """Makes the channel of an existing topic, or leaves it."""
    topic, name = _topic_and_channel(app, request)
    topic.get_channel(name)


def delete_channel(app: Any, request: Request) -> Awaitable[None]:
    """Deletes the channel with its messages, and closes its consumers; off the disk before it is answered."""
    topic, name = _topic_and_channel(app, request)
    channel = topic.channel(name)
    if channel is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    topic.delete_channel(name)
    return _deleted(app, topic, channel.ephemeral)


def empty_channel(app: Any, request: Request) -> Awaitable[None] | None:
    """Drops the channel's messages; off the disk before it is answered."""
    return _emptied(app, _existing_channel(app, request)[1])


async def pause_channel(app: Any, request: Request) -> None:
    """Stops deliveries from the channel; on disk before it is answered."""
    topic, channel = _existing_channel(app, request)
    channel.pause()
    await app.broker.save_metadata(topic)


async def unpause_channel(app: Any, request: Request) -> None:
    """Ends pause_channel; on disk before it is answered."""
    topic, channel = _existing_channel(app, request)
    channel.unpause()
    await app.broker.save_metadata(topic)


def _topic_name(app: Any, request: Request) -> bytes:
    name = read_whole(app, request).get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    return name


def _existing(app: Any, name: bytes) -> Any:
    topic = app.broker.topic(name)
    if topic is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    return topic


def _topic_and_channel(app: Any, request: Request) -> tuple[Any, bytes]:
    arguments = read_whole(app, request)
    for key in (b"topic", b"channel"):
        word = key.decode().upper()
        name = arguments.get(key)
        if name is None:
            raise ApiError(400, f"MISSING_ARG_{word}")
        if not is_valid_name(name):
            raise ApiError(400, f"INVALID_ARG_{word}")
    return _existing(app, arguments[b"topic"]), arguments[b"channel"]


def _existing_channel(app: Any, request: Request) -> tuple[Any, Any]:
    """The channel, behind its topic."""
    topic, name = _topic_and_channel(app, request)
    channel = topic.channel(name)
    if channel is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return topic, channel
