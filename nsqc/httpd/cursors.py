"""Positions of channels in a log: POST /channel/seek, and /channel/create with a start position."""

from __future__ import annotations

from collections.abc import Awaitable

from nsqc.broker.topic import Topic
from nsqc.httpd.app import App
from nsqc.httpd.logread import offset_at
from nsqc.httpd.naming import existing_channel, invalid, log_of, topic_and_channel
from nsqc.httpd.positions import beyond, gone, number_of, time_of, written
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Request, read_whole
from nsqc.options.places import BEGINNING, END, Place, parse_place

# to= and from= may have their value in one of these arguments.
_SPELLED_OUT = (b"offset", b"time")


def seek(app: App, request: Request) -> Awaitable[Reply | None]:
    """Moves a channel of a log; answers once the move is in the journal.

    Forgets messages that were in flight or waiting: only messages after the new position are delivered.
    """
    arguments = read_whole(app.log, request)
    topic, name = topic_and_channel(app, arguments)
    existing_channel(topic, name)
    log_of(topic)
    if b"to" not in arguments:
        raise ApiError(400, "MISSING_ARG_TO")
    return _seek(app, topic, name, Target(arguments, b"to"))


async def _seek(app: App, topic: Topic, name: bytes, place: Target) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    existing_channel(topic, name).seek(offset)
    await app.broker.recorded(topic)
    return None


def create_from(app: App, request: Request, topic: Topic, name: bytes, arguments: dict[bytes, bytes]
                ) -> Awaitable[Reply | None]:
    """Creates a channel of a log at the position `from`; answers once that is in the journal."""
    log_of(topic)
    return _create_from(app, request, topic, name, Target(arguments, b"from"))


async def _create_from(app: App, request: Request, topic: Topic, name: bytes, place: Target) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    if topic.channel(name) is not None:
        # It exists at another position, and may be in use: /channel/seek moves it.
        raise ApiError(409, "CHANNEL_EXISTS")
    request.made += 1
    app.broker.get_channel(topic, name, offset)
    await app.broker.recorded(topic)
    return None


class Target:
    """A position in a log from a call's arguments: `to=` or `from=`, in one argument or split into two."""

    def __init__(self, arguments: dict[bytes, bytes], key: bytes) -> None:
        word = arguments[key]
        if word in _SPELLED_OUT:
            if word not in arguments:
                raise ApiError(400, f"MISSING_ARG_{word.decode().upper()}")
            self._place = (Place(offset=number_of(arguments, word, -1)) if word == b"offset"
                           else Place(time=time_of(arguments, word)))
            return
        try:
            self._place = parse_place(written(word))
        except ValueError:
            raise invalid(key) from None

    async def resolve(self, app: App, topic: Topic) -> int | Reply:
        """The offset, or the answer if it does not exist."""
        place = self._place
        offset = place.offset if place.time is None else await offset_at(app, topic, place.time)
        log = log_of(topic)
        if place.word == BEGINNING:
            return log.first
        if place.word == END:
            return log.next
        if offset < log.first:
            return gone(log)
        return beyond(log) if offset > log.following else offset
