"""Moves dead letters out of their topic: back to a channel, or drops them.

A letter is settled once its copy in the channel is on disk, and synced. So after a kill, or a power failure, it is in
one of them, or in both: never in neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from nsqc.broker.redrive import Taken, put_again, synced
from nsqc.broker.settled import settle
from nsqc.broker.topic import PENDING
from nsqc.httpd.letters import Letter, Query, Scan
from nsqc.httpd.naming import existing, existing_channel, log_of
from nsqc.httpd.publish import topic_refusal, written
from nsqc.httpd.reply import ApiError
from nsqc.store.slicing import rest
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App

_READ_AGAIN_S, _PATIENCE_S = 0.01, 5.0      # for messages that a thread reads from the disk
NO_ORIGIN = "it has no origin; name a channel (to=TOPIC/CHANNEL)"
MALFORMED = "its origin is malformed; name a channel (to=TOPIC/CHANNEL)"
NO_GRANT = "the user has no grant publish for this topic"
NO_CHANNEL = "the channel does not exist; create it, or name another one (to=TOPIC/CHANNEL)"


class _Moved:
    """The result of a call so far."""

    def __init__(self, may_publish: Callable[[str], bool]) -> None:
        """may_publish: whether the client may publish to a topic."""
        self.count = 0
        self.skipped: dict[tuple[str | None, str], int] = {}
        self.permitted = cache(may_publish)

    def skip(self, origin: str | None, reason: str) -> None:
        """One letter stays in its topic."""
        self.skipped[origin, reason] = self.skipped.get((origin, reason), 0) + 1

    def answer(self, topic: Topic, query: Query, scan: Scan, word: str) -> Json:
        """For the client."""
        return {"topic": topic.name.decode(), "dry_run": query.dry_run, word: self.count,
                "skipped": [{"origin": origin, "reason": reason, "count": count}
                            for (origin, reason), count in self.skipped.items()], "next": scan.following}


# ---------------------------------------------------------------------- logs

async def redrive(app: App, topic: Topic, query: Query, target: tuple[str, str], reads: int,
                  may_publish: Callable[[str], bool]) -> Json:
    """Redrives waiting letters, each to its own channel, or all to one. Letters to topics that the client may not
    publish to stay."""
    moved, scan = _Moved(may_publish), Scan(app, topic, query.offset)
    async with app.redrives:
        for _ in range(reads):
            letters = await _next(scan, query, moved.count)
            if letters is None:
                break
            await _put_all(app, topic, letters, target, query, moved)
            if moved.count == query.limit:
                break
    return moved.answer(topic, query, scan, "redriven")


async def _next(scan: Scan, query: Query, done: int) -> list[Letter] | None:
    """The next matching letters, within the limit; None at the end."""
    letters = await scan.some()
    if letters is None:
        return None
    wanted = list(filter(query.letters.fits, letters))
    left = query.limit - done
    if len(wanted) > left:
        scan.back_to(wanted[left].offset)
    return wanted[:left]


async def _put_all(app: App, topic: Topic, letters: list[Letter], target: tuple[str, str], query: Query,
                   moved: _Moved) -> None:
    """Puts letters into their channels, and settles them once they are on disk there. Raises ApiError."""
    slicer, writes, settled, failure = app.broker.slicer, _Writes(), list[int](), ""
    slicer.start()
    for letter in letters:
        origin = letter.origin
        to = target if target[0] or origin is None else (origin.topic, origin.channel)
        label = f"{to[0]}/{to[1]}" if to[0] else None
        found = app.broker.topic(to[0].encode())
        channel = None if found is None else found.channel(to[1].encode())
        if found is None or channel is None:
            moved.skip(label, NO_CHANNEL if label else MALFORMED if letter.malformed else NO_ORIGIN)
            continue
        if not moved.permitted(to[0]):
            moved.skip(label, NO_GRANT)
            continue
        if not query.dry_run:
            result = put_again(app.broker, found, channel, letter.body)
            if result > 0:
                failure = f"{label}: {topic_refusal(result, found)}"
                break
            if result == PENDING:
                writes.add(found, channel)
            settled.append(letter.offset)
        moved.count += 1
        if slicer.is_over():
            writes.begin()
            await rest(slicer)
    if await writes.failed(app):
        raise ApiError(503, f"FAILED - channels could not be written, and may deliver up to {len(settled)} of these "
                       "letters, which stay in the dead-letter topic as well")
    await _settle(app, topic, settled)
    if failure:
        raise ApiError(503, f"{failure} - {moved.count} letters were redriven before")


class _Writes:
    """Commits to wait for."""

    def __init__(self) -> None:
        self._topics: dict[bytes, Topic] = {}    # that received messages in this loop iteration
        self._channels: dict[tuple[bytes, bytes], Channel] = {}
        self._under_way: list[asyncio.Future[int]] = []

    def add(self, topic: Topic, channel: Channel) -> None:
        """Notes a channel that received a message. Call begin() in the same loop iteration."""
        self._topics[topic.name] = topic
        self._channels[topic.name, channel.name] = channel

    def begin(self) -> None:
        """Begins to wait for the commits of the messages put so far; commits do not wait for this call."""
        self._under_way += map(written, self._topics.values())
        self._topics.clear()

    async def failed(self, app: App) -> bool:
        """Whether a commit or a channel's sync has failed, once all have ended."""
        self.begin()
        if any(await asyncio.gather(*self._under_way)):
            return True
        return not all(await asyncio.gather(*(synced(app.broker, channel) for channel in self._channels.values())))


async def _settle(app: App, topic: Topic, offsets: list[int]) -> None:
    log_of(topic)
    if offsets:
        settle(topic, offsets)
        await app.broker.recorded(topic)


async def drop(app: App, topic: Topic, query: Query, reads: int) -> Json:
    """Settles waiting letters."""
    moved, scan = _Moved(bool), Scan(app, topic, query.offset)
    async with app.redrives:
        for _ in range(reads):
            letters = await _next(scan, query, moved.count)
            if letters is None:
                break
            if not query.dry_run:
                await _settle(app, topic, [letter.offset for letter in letters])
            moved.count += len(letters)
            if moved.count == query.limit:
                break
    return moved.answer(topic, query, scan, "dropped")


# ---------------------------------------------------------------------- in memory

async def redrive_memory(app: App, topic: Topic, source: Channel, query: Query, target: tuple[str, str]) -> Json:
    """Moves waiting messages of a channel of an in-memory dead-letter topic to one channel."""
    found = existing(app, target[0].encode())
    channel = existing_channel(found, target[1].encode())
    if channel is source:
        raise ApiError(400, "INVALID_ARG_TO - the messages already wait in that channel")
    moved, idle = min(query.limit, source.depth) if query.dry_run else 0, 0.0
    async with app.redrives:
        while not query.dry_run and moved < query.limit and not source.exiting:
            taken = Taken(source)
            count, result = taken.move(app.broker, found, channel, query.limit - moved)
            writes = _Writes()
            if count and not channel.ephemeral:
                writes.add(found, channel)
            if await writes.failed(app):
                taken.give_back()
                raise ApiError(503, f"FAILED - {target[0]}/{target[1]} could not be written, and may deliver up to "
                               f"{count} messages that are still in {topic.name.decode()} as well")
            taken.finish()
            moved += count
            if result > 0:
                raise ApiError(503, f"{topic_refusal(result, found)} - {moved} messages were redriven before")
            idle = 0.0 if count else idle + _READ_AGAIN_S
            if not count and (source.depth == 0 or idle > _PATIENCE_S):
                break       # none waits, or the disk does not return it
            await asyncio.sleep(0 if count else _READ_AGAIN_S)
    return {"topic": topic.name.decode(), "dry_run": query.dry_run, "redriven": moved, "skipped": [],
            "next": 0 if source.depth and not query.dry_run else None}
