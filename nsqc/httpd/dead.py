"""GET /dead, /dead/list and /dead/show, POST /dead/redrive and /dead/drop: lists, redrives and drops dead letters."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.broker.settled import waiting
from nsqc.httpd import moving
from nsqc.httpd.app import App
from nsqc.httpd.letters import Filter, Letter, Query, Scan, origin_in
from nsqc.httpd.naming import existing_channel, invalid, log_of, named
from nsqc.httpd.peeked import FORMS, Bodies
from nsqc.httpd.positions import number_of
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, check_publish, may_publish, read_arguments, read_whole
from nsqc.store.slicing import rest
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic

_SUFFIX = b".dead"              # of the default dead-letter topic: see nsqc.options.channel_keys
_DEFAULT_LIMIT, _MAX_LIMIT = 1000, 10_000
_DEFAULT_SHOWN, _MAX_SHOWN = 10, 1000
_DEFAULT_BYTES, _MAX_BYTES = 64 * 1024, 1024 * 1024
_SHOWN_BYTES = 256 * 1024       # of bodies in one answer, unless the first is larger
MALFORMED = "malformed_origin"  # reason of letters whose origin is damaged
_MOST_READS = 64                # of the log, for one call


class _DeadTopic(Struct, frozen=True, gc=False):
    """A dead-letter topic. waiting: messages not yet redriven or dropped; in memory, those of its channels."""

    topic: str
    storage: str
    waiting: int
    channels: list[str]     # that use it as dead-letter topic, as TOPIC/CHANNEL


class _Group(Struct):
    """Letters of one channel that died for the same reason; origin is None for messages that are not dead letters."""

    origin: str | None
    reason: str | None
    count: int
    oldest: int | None      # first publish time of the oldest, ns since 1970


class _Shown(Struct, frozen=True, omit_defaults=True):
    offset: int
    id: str
    timestamp: int
    size: int
    origin: Raw | None
    body: str | UnsetType = UNSET
    body_json: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    truncated: bool = False
    malformed_origin: bool = False


# ---------------------------------------------------------------------- GET /dead

async def topics(app: App, request: Request) -> dict[str, list[_DeadTopic]]:
    """The dead-letter topics of this node: those named by rules of its channels, and those with the default name."""
    slicer = app.broker.slicer
    slicer.start()
    sources: dict[bytes, list[str]] = {}
    for topic in list(app.broker.topics.values()):
        if topic.name.endswith(_SUFFIX):
            sources.setdefault(topic.name, [])
        for channel in list(topic.channels.values()):
            if channel.rule is not None and channel.rule.moves and channel.dead_letter:
                sources.setdefault(channel.dead_letter, []).append(f"{topic.name.decode()}/{channel.name.decode()}")
        await rest(slicer)
    found = []
    for name in sorted(sources):
        dead = app.broker.topic(name)
        if dead is not None and not dead.exiting:
            found.append(_DeadTopic(name.decode(), "memory" if dead.log is None else "log", _count(dead),
                                    sorted(sources[name])))
        await rest(slicer)
    return {"topics": found}


def _count(topic: Topic) -> int:
    if topic.log is not None:
        return waiting(topic)
    return topic.depth + sum(channel.depth for channel in topic.channels.values())


# ---------------------------------------------------------------------- GET /dead/list, /dead/show

def groups(app: App, request: Request) -> Awaitable[Json]:
    """Counts waiting letters by their channel and reason, in one part of the log."""
    topic, query = _asked(app, read_arguments(app.log, request), _MAX_LIMIT, 2**62)
    return _groups(app, topic, query)


async def _groups(app: App, topic: Topic, query: Query) -> Json:
    scan, found = Scan(app, topic, query.offset), dict[tuple[str | None, str | None], _Group]()
    for _ in range(_MOST_READS):
        letters = await scan.some()
        if letters is None:
            break
        for letter in filter(query.letters.fits, letters):
            origin = letter.origin
            key = ((None, MALFORMED if letter.malformed else None) if origin is None
                   else (f"{origin.topic}/{origin.channel}", origin.reason))
            group = found.setdefault(key, _Group(key[0], key[1], 0, None))
            group.count += 1
            if origin is not None:
                group.oldest = min(group.oldest or origin.timestamp, origin.timestamp)
    return {"topic": topic.name.decode(), "waiting": waiting(topic), "groups": list(found.values()),
            "next": scan.following}


def show(app: App, request: Request) -> Awaitable[Json]:
    """Letters with their bodies, a page at a time."""
    arguments = read_arguments(app.log, request)
    topic, query = _asked(app, arguments, _DEFAULT_SHOWN, _MAX_SHOWN)
    form = arguments.get(b"body", b"text").decode("latin-1")
    if form not in FORMS:
        raise invalid(b"body")
    most = number_of(arguments, b"max_bytes", _DEFAULT_BYTES, 0, _MAX_BYTES)
    return _show(app, topic, query, Bodies(form, most), most)


async def _show(app: App, topic: Topic, query: Query, bodies: Bodies, most: int) -> Json:
    scan, found, room = Scan(app, topic, query.offset), list[_Shown](), _SHOWN_BYTES
    for _ in range(_MOST_READS):
        letters = await scan.some()
        if letters is None:
            break
        for letter in filter(query.letters.fits, letters):
            if len(found) == query.limit or (found and room < min(len(letter.body), most)):
                scan.back_to(letter.offset)
                break
            room -= min(len(letter.body), most)
            found.append(_shown(letter, bodies, most))
        else:
            continue
        break
    return {"topic": topic.name.decode(), "messages": found, "next": scan.following}


def _shown(letter: Letter, bodies: Bodies, most: int) -> _Shown:
    cut = len(letter.body) > most
    body: Json = bodies.show(letter.body[:most], cut)
    return _Shown(letter.offset, letter.id, letter.timestamp, len(letter.body),
                  None if letter.raw is None else Raw(letter.raw), truncated=cut and bool(body),
                  malformed_origin=letter.malformed, **body)


def _asked(app: App, arguments: dict[bytes, bytes], default: int, most: int) -> tuple[Topic, Query]:
    topic = named(app, arguments)
    query = Query.of(arguments, default, most)
    log_of(topic)
    return topic, query


# ---------------------------------------------------------------------- POST /dead/redrive, /dead/drop

def redrive(app: App, request: Request) -> Awaitable[Json]:
    """Moves letters back to their channels, and to no other channel of those topics."""
    arguments = read_whole(app.log, request)
    topic, query = named(app, arguments), Query.of(arguments, _DEFAULT_LIMIT, _MAX_LIMIT)
    target = origin_in(arguments, b"to")
    if target[0] and not target[1]:
        raise invalid(b"to")
    if target[0]:
        check_publish(request, target[0])
    if topic.log is None and not topic.exiting:
        return _redrive_memory(app, topic, query, target, arguments)
    if b"source" in arguments:
        raise ApiError(400, f"INVALID_ARG_SOURCE - {topic.name.decode()} is log-backed: its letters wait in no "
                       "channel")
    log_of(topic)
    return moving.redrive(app, topic, query, target, _MOST_READS, partial(may_publish, request))


def _redrive_memory(app: App, topic: Topic, query: Query, target: tuple[str, str],
                    arguments: dict[bytes, bytes]) -> Awaitable[Json]:
    name, source = topic.name.decode(), arguments.get(b"source", b"")
    if not target[0] or not source:
        raise ApiError(400, f"MISSING_ARG_{'TO' if source else 'SOURCE'} - {name} is kept in memory, so its messages "
                       "have no origin: name the channel that holds them (source) and their destination "
                       "(to=TOPIC/CHANNEL)")
    if query.letters != Filter() or query.offset:
        raise ApiError(400, f"NO_LOG - {name} is kept in memory: its messages can only be redriven in order, without "
                       "origin, reason, id and from")
    return moving.redrive_memory(app, topic, existing_channel(topic, source), query, target)


def drop(app: App, request: Request) -> Awaitable[Json]:
    """Settles letters without redelivery."""
    arguments = read_whole(app.log, request)
    topic, query = named(app, arguments), Query.of(arguments, _DEFAULT_LIMIT, _MAX_LIMIT)
    if topic.log is None and not topic.exiting:
        raise ApiError(400, f"NO_LOG - {topic.name.decode()} is kept in memory: /channel/empty and /topic/empty drop "
                       "its messages")
    log_of(topic)
    return moving.drop(app, topic, query, _MOST_READS)
