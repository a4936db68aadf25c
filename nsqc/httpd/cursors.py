"""Where channels are in a log: POST /channel/seek, and /channel/create with a place to begin at."""

from __future__ import annotations

from collections.abc import Awaitable

from nsqc.broker.topic import Topic
from nsqc.httpd.app import App
from nsqc.httpd.logs import offset_at
from nsqc.httpd.positions import beyond, gone, invalid, log_of, named, number_of, rfc3339, time_of
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Request, read_whole
from nsqc.wire.names import is_valid_name

# Arguments by which to= and from= may be said in two.
_SPELLED_OUT = (b"offset", b"time")


def seek(app: App, request: Request) -> Awaitable[Reply | None]:
    """Moves a channel of a log; answers once the move is in the journal.

    What was in flight or waited before counts no longer: only what lies behind the new place is delivered.
    """
    arguments = read_whole(app.log, request)
    topic, name = _topic_and_channel(app, arguments)
    if topic.channel(name) is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    log_of(topic)
    if b"to" not in arguments:
        raise ApiError(400, "MISSING_ARG_TO")
    return _seek(app, topic, name, Place(arguments, b"to"))


async def _seek(app: App, topic: Topic, name: bytes, place: Place) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    channel = topic.channel(name)
    if channel is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    channel.seek(offset)
    await app.broker.recorded(topic)
    return None


def create_from(app: App, request: Request, topic: Topic, name: bytes, arguments: dict[bytes, bytes]
                ) -> Awaitable[Reply | None]:
    """Creates a channel of a log that begins at the place `from`; answers once that is in the journal."""
    log_of(topic)
    return _create_from(app, request, topic, name, Place(arguments, b"from"))


async def _create_from(app: App, request: Request, topic: Topic, name: bytes, place: Place) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    if topic.channel(name) is not None:
        # Its place is not that of this call, and may be in use: /channel/seek moves it.
        raise ApiError(409, "CHANNEL_EXISTS")
    request.made += 1
    app.broker.get_channel(topic, name, offset)
    await app.broker.recorded(topic)
    return None


def _topic_and_channel(app: App, arguments: dict[bytes, bytes]) -> tuple[Topic, bytes]:
    if b"topic" in arguments:
        name = arguments.get(b"channel")
        if name is None:
            raise ApiError(400, "MISSING_ARG_CHANNEL")
        if not is_valid_name(name):
            raise ApiError(400, "INVALID_ARG_CHANNEL")
    return named(app, arguments), arguments[b"channel"]


class Place:
    """A place as clients name it: beginning, end, an offset, or a time."""

    def __init__(self, arguments: dict[bytes, bytes], key: bytes) -> None:
        self.word = arguments[key]          # beginning or end; empty: there is one of the following
        self.offset = -1                    # below 0: there is none
        self.time: int | None = None        # ns since 1970
        if self.word in (b"beginning", b"end"):
            return
        if self.word in _SPELLED_OUT:
            if self.word not in arguments:
                raise ApiError(400, f"MISSING_ARG_{self.word.decode().upper()}")
            self.offset = number_of(arguments, b"offset", -1) if self.word == b"offset" else -1
            self.time = time_of(arguments, b"time") if self.word == b"time" else None
        elif self.word.isdigit():
            self.offset = number_of(arguments, key, -1)
        else:
            self.time = rfc3339(self.word)
            if self.time is None:
                raise invalid(key)
        self.word = b""

    async def resolve(self, app: App, topic: Topic) -> int | Reply:
        """The offset, or the answer to one that does not exist."""
        offset = self.offset if self.time is None else await offset_at(app, topic, self.time)
        log = log_of(topic)
        if self.word == b"beginning":
            return log.first
        if self.word == b"end":
            return log.next
        if offset < log.first:
            return gone(log)
        return beyond(log) if offset > log.following else offset
