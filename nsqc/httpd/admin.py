"""Topic and channel calls: create, delete, empty, pause, unpause. Error words and the order of checks are nsqd's, with
its inconsistencies: only some calls check that a name is valid before they look up its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from nsqc.broker.channel import Channel
from nsqc.broker.drain import DrainState
from nsqc.broker.topic import Topic
from nsqc.httpd.app import App, existing, existing_channel, topic_and_channel
from nsqc.httpd.publish import named_topic
from nsqc.httpd.reply import ApiError, Reply, Request, boolean_in, read_arguments, read_whole
from nsqc.loop.slow import promise
from nsqc.options.declared import LONGEST
from nsqc.options.option import parse_duration
from nsqc.wire.parser import is_valid_name

# ====================================================================== drain
# /drain: shows, starts, changes and undoes a drain (nsqc.broker.drain).

_MS = 1_000_000
_DIGITS = 18


def get_drain(app: App, request: Request) -> DrainState:
    """Whether the node is draining, and its progress."""
    return app.drain.state()


def post_drain(app: App, request: Request) -> DrainState:
    """Begins a drain, or changes the running one."""
    arguments = read_arguments(app.log, request)
    keep = boolean_in(arguments, b"keep")
    timeout = None if b"timeout" not in arguments else _duration(arguments[b"timeout"])
    if app.drain.closed:
        raise ApiError(503, "EXITING")
    app.drain.begin(timeout, keep)
    return app.drain.state()


def delete_drain(app: App, request: Request) -> DrainState:
    """Undoes a drain."""
    if app.drain.closed:
        raise ApiError(503, "EXITING")
    app.drain.undo()
    return app.drain.state()


def _duration(text: bytes) -> int:
    """Nanoseconds, from a duration such as 30s, or from milliseconds, like `defer` of /pub."""
    try:
        is_number = text.isdigit() and len(text) <= _DIGITS
        timeout = int(text) * _MS if is_number else parse_duration(text.decode())
    except ValueError:
        raise ApiError(400, "INVALID_ARG_TIMEOUT") from None
    if not 0 <= timeout <= LONGEST:
        raise ApiError(400, "INVALID_ARG_TIMEOUT")
    return timeout


# ====================================================================== admin

def create_topic(app: App, request: Request) -> None:
    """Creates the topic unless it exists."""
    named_topic(app, request, read_arguments(app.log, request))


def delete_topic(app: App, request: Request) -> Awaitable[None]:
    """Deletes the topic with its channels and messages; answers once they are gone from disk."""
    topic = existing(app, _topic_name(app, request))
    app.broker.delete_topic(topic.name)
    gone, settle = promise()
    topic.when_gone(settle)
    return _deleted(app, topic, topic.ephemeral, gone)


async def _deleted(app: App, topic: Topic, ephemeral: bool, gone: asyncio.Future[None] | None = None) -> None:
    """Waits until a kill cannot undo the deletion. Raises OSError if it cannot be written yet."""
    if gone is not None:
        await gone
    if ephemeral:
        return
    failed = None
    for step in (app.broker.removed, lambda: app.broker.recorded(topic), app.rules.written, app.channel_rules.written,
                 lambda: app.broker.save_metadata(topic)):
        try:
            await step()
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def empty_topic(app: App, request: Request) -> Awaitable[None]:
    """Drops the messages in the topic's own backlog, not those in channels; answers once they are gone from disk."""
    name = _topic_name(app, request)
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    topic = existing(app, name)
    return _emptied(app, topic, topic)


def _emptied(app: App, topic: Topic, queue: Topic | Channel) -> Awaitable[None]:
    queue.empty()
    return _until_empty(app, topic, queue)


async def _until_empty(app: App, topic: Topic, queue: Topic | Channel) -> None:
    """Waits until a kill can neither restore the dropped messages nor undo a creation that only their files proved.
    Raises OSError."""
    if queue.disk is not None:
        await app.broker.emptied(queue)
    await app.broker.recorded(topic)
    if not queue.ephemeral:
        await app.broker.save_metadata(topic)


async def pause_topic(app: App, request: Request) -> None:
    """Keeps the topic's messages from its channels; answers once that is on disk."""
    topic = existing(app, _topic_name(app, request))
    topic.pause()
    await app.broker.save_metadata(topic)


async def unpause_topic(app: App, request: Request) -> None:
    """Reverses pause_topic; answers once that is on disk."""
    topic = existing(app, _topic_name(app, request))
    topic.unpause()
    await app.broker.save_metadata(topic)


def create_channel(app: App, request: Request) -> Awaitable[Reply | None] | None:
    """Creates the channel of an existing topic, unless it exists; `from` is its first position in a log. With a log, it
    answers once the channel is in the journal."""
    arguments = read_whole(app.log, request)
    topic, name = topic_and_channel(app, arguments)
    if b"from" in arguments:
        from nsqc.httpd.logs import create_from  # here: many daemons have no logs

        return create_from(app, request, topic, name, arguments)
    if topic.channel(name) is None:
        request.made += 1
        app.broker.get_channel(topic, name)
    return None if topic.log is None else app.broker.recorded(topic)


def delete_channel(app: App, request: Request) -> Awaitable[None]:
    """Deletes the channel with its messages, and closes its consumers; answers once it is gone from disk."""
    topic, channel = _existing_channel(app, request)
    topic.delete_channel(channel.name)
    return _deleted(app, topic, channel.ephemeral)


def empty_channel(app: App, request: Request) -> Awaitable[None]:
    """Drops the channel's messages; answers once they are gone from disk."""
    return _emptied(app, *_existing_channel(app, request))


async def pause_channel(app: App, request: Request) -> None:
    """Stops deliveries from the channel; answers once that is on disk."""
    topic, channel = _existing_channel(app, request)
    channel.pause()
    await app.broker.save_metadata(topic)


async def unpause_channel(app: App, request: Request) -> None:
    """Reverses pause_channel; answers once that is on disk."""
    topic, channel = _existing_channel(app, request)
    channel.unpause()
    await app.broker.save_metadata(topic)


def disconnect(app: App, request: Request) -> dict[str, int]:
    """Closes the connections of a channel's consumer, by the remote address that /stats shows. Messages in flight to it
    are redelivered as after any lost connection."""
    arguments = read_whole(app.log, request)
    topic, name = topic_and_channel(app, arguments)
    address = arguments.get(b"client", b"").decode("utf-8", "replace")
    if not address:
        raise ApiError(400, "MISSING_ARG_CLIENT - the remote_address of a consumer in /stats")
    # Consumers of a Unix socket have no address of their own.
    found = [client for client in existing_channel(topic, name).clients.values() if client.address == address]
    if not found:
        raise ApiError(404, "CLIENT_NOT_FOUND - the channel has no consumer with this remote_address")
    for client in found:
        client.disconnect(request.user)
    return {"closed": len(found)}


def _topic_name(app: App, request: Request) -> bytes:
    name = read_whole(app.log, request).get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    return name


def _existing_channel(app: App, request: Request) -> tuple[Topic, Channel]:
    topic, name = topic_and_channel(app, read_whole(app.log, request))
    return topic, existing_channel(topic, name)
