"""Changes that the page makes: on all nodes that they concern, with a result for each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nsqc.access.needs import ADMIN, PUBLISH
from nsqc.admin.changes import UNCERTAIN, Result, for_people, places, send, subject
from nsqc.admin.fleet import NSQD, Fleet, Moment
from nsqc.admin.messages import LINES
from nsqc.admin.rights import rights_of
from nsqc.admin.upstream import Ask, UpstreamError, dead_topic, encode, set_rules, target
from nsqc.admin.view import View, json_of, listed
from nsqc.httpd.reply import ApiError, Request
from nsqc.options.rules import KEYS as MOVING
from nsqc.wire.outside import Decoder, Json, JSONError
from nsqc.wire.parser import is_valid_name

# ====================================================================== letters
# Dead letters that leave their topic by the page: redriven to the channels that they come from, or dropped.

DONE = {"redrive": "redriven", "drop": "dropped"}   # of the actions: what nodes call that
AT_ONCE = 1000              # letters of one call
GONE = "it was redriven or dropped before"
# Anyone may pose as a node, and name a next place without end.
LONGEST_S = 600.0           # of the calls of one node; a user repeats an action that takes longer
MOST_CALLS = 100_000
LONGEST_NAME = 200          # characters of an origin or a reason
MOST_REASONS = 100          # for which letters stay; others are summed


class Letters(NamedTuple):
    """Letters of a dead-letter topic. origin: only those of TOPIC/CHANNEL; id: only the one at this offset. source, to:
    on nodes that keep the topic in memory, where letters have no origin: the channel that holds them, and the
    TOPIC/CHANNEL that gets all of them."""

    topic: str
    origin: str
    id: str
    offset: int
    source: str = ""
    to: str = ""

    def ask(self, action: str, begin: int, dry_run: bool, in_memory: bool = False) -> Ask:
        """The next call."""
        if in_memory:
            return Ask("POST", target(f"/dead/{action}", topic=self.topic, source=self.source, to=self.to,
                                      limit=AT_ONCE, dry_run="true" if dry_run else "false"))
        return Ask("POST", target(f"/dead/{action}", topic=self.topic, origin=self.origin or None, id=self.id or None,
                                  limit=1 if self.id else AT_ONCE, dry_run="true" if dry_run else "false",
                                  **{"from": begin}))


class Moved(NamedTuple):
    """What one node has done, or would do."""

    done: int
    skipped: Counter[tuple[str, str]]       # letters that stay, by origin and reason
    more: bool = False      # the node has not gone through all letters


async def move(fleet: Fleet, nodes: Sequence[str], action: str, letters: Letters) -> list[Result]:
    """Redrives or drops letters on all nodes at once."""
    return [*await asyncio.gather(*(_move(fleet, node, action, letters) for node in nodes))]


async def _move(fleet: Fleet, node: str, action: str, letters: Letters) -> Result:
    began = time.monotonic()
    ok, status = True, 200
    try:
        moved = await _all(fleet, node, action, letters, False)
        text = told(moved, DONE[action]) if moved.done or moved.skipped or not letters.id else GONE
    except UpstreamError as error:
        ok, status = False, error.status
        text = error.word or (error.told if status else f"{error.told} ({UNCERTAIN})")
    return Result(node, NSQD, ok, status, text, round((time.monotonic() - began) * 1000, 1))


def told(moved: Moved, word: str) -> str:
    """What came of it, for people."""
    parts = [f"{moved.done:,} {word}"]
    parts += [f"{count:,} of {origin or 'unknown origin'} left: {reason}"
              for (origin, reason), count in moved.skipped.items()]
    if moved.more:
        parts.append("the node has more: repeat the action")
    return "; ".join(parts)


async def preview(fleet: Fleet, nodes: Sequence[str], action: str, letters: Letters) -> list[Json]:
    """How many letters each node would move."""
    return [*await asyncio.gather(*(_preview(fleet, node, action, letters) for node in nodes))]


async def _preview(fleet: Fleet, node: str, action: str, letters: Letters) -> Json:
    try:
        moved = await _all(fleet, node, action, letters, True)
    except UpstreamError as error:
        return {"node": node, "error": error.short}
    return {"node": node, "count": moved.done, "text": told(moved, f"will be {DONE[action]}")}


async def _all(fleet: Fleet, node: str, action: str, letters: Letters, dry_run: bool) -> Moved:
    """Calls a node until it has gone through all letters. Raises UpstreamError."""
    begin, count, skipped, in_memory = letters.offset, 0, Counter[tuple[str, str]](), False
    until = time.monotonic() + LONGEST_S
    for _ in range(MOST_CALLS):
        try:
            page = await fleet.get(node, letters.ask(action, begin, dry_run, in_memory), json_of)
        except UpstreamError as error:
            if in_memory or letters.id or not letters.source or not error.word.startswith("MISSING_ARG_SOURCE"):
                raise
            in_memory = True
            continue
        moved, following = page.get(DONE[action]), page.get("next")
        stay = [(one, one.get("count")) for one in listed(page.get("skipped"))]
        if not isinstance(moved, int) or moved < 0 or not all(isinstance(number, int) for _, number in stay):
            raise UpstreamError("the node does not answer as nsqc does")
        count += moved
        for one, number in stay:
            key = str(one.get("origin") or "")[:LONGEST_NAME], str(one.get("reason"))[:LONGEST_NAME]
            skipped[key if key in skipped or len(skipped) < MOST_REASONS else ("", "other reasons")] += number
        # A position that does not advance would be requested forever.
        if letters.id or not isinstance(following, int) or (following <= begin and not moved):
            return Moved(count, skipped)
        if time.monotonic() > until:
            break
        begin = following
    return Moved(count, skipped, more=True)


# ====================================================================== actions

PLAIN = ("pause", "unpause", "empty")
OF_LETTERS = tuple(DONE)
NAMED = ("empty", "delete", "tombstone", "seek", "drain", "drop")     # these ask for the name
MOST_SHOWN = 400    # characters of a change in logs
OF_NODES = ("drain", "undrain")
ONE_NODE = (*OF_NODES, "tombstone", "disconnect")
EXTENDED = ("seek", "disconnect", "drain", "undrain", "rules", *OF_LETTERS)
ACTIONS = ("create", "delete", *PLAIN, "tombstone", *EXTENDED)


class Asked(msgspec.Struct):
    """The body of an action. nodes: addresses; empty: all nodes that have it. confirm: the name, if it destroys.
    client: the remote address of a consumer. origin, id and offset select dead letters, source and to are for those in
    memory: see Letters."""

    action: str = ""
    topic: str = ""
    channel: str = ""
    nodes: list[str] = []
    to: str = ""
    timeout: str = ""
    keep: bool = False
    rules: dict[str, Any] = {}      # Any: JSON
    origin: str = ""
    id: str = ""
    offset: int = 0
    source: str = ""
    client: str = ""
    confirm: str = ""
    preview: bool = False


_asked = Decoder(Asked).decode


class Actions:
    """The calls."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def act(self, request: Request) -> Json:
        """Carries out an action."""
        view = self._view
        try:
            asked = _asked(request.body)
        except JSONError as error:
            raise ApiError(400, f"INVALID_BODY - {error}") from None
        shown = subject_of(asked)
        request.param = f"{asked.action} {shown}"[:MOST_SHOWN]
        self._check(request, asked)
        moment = await view.moment()
        nodes = self._nodes(moment, asked)
        if asked.action == "rules" and asked.rules.keys() & MOVING:
            await self._check_ways(request, asked, moment, nodes)
        if asked.preview:
            return {"preview": await self._preview(asked, nodes)}
        results = for_people(await self._carried_out(asked, nodes))
        done = sum(result.ok for result in results)
        request.param += f": {done} of {len(results)} done"
        view.ledger.add(request.user, request.remote, asked.action, shown, asked.topic, results)
        self._notify(request, asked)
        view.poller.hurry(gauges=asked.action in OF_NODES)
        return {"results": results}

    def _check(self, request: Request, asked: Asked) -> None:
        if asked.action not in ACTIONS:
            raise ApiError(400, f"INVALID_ACTION - one of {', '.join(ACTIONS)}")
        if asked.action in EXTENDED:
            self._view.people.check_extended(request)
        if asked.action in OF_NODES:
            if asked.topic or asked.channel:
                raise ApiError(400, f"INVALID_TOPIC - {asked.action} is about a node")
        elif not is_valid_name(asked.topic.encode()):
            raise ApiError(400, "INVALID_TOPIC")
        if asked.channel and not is_valid_name(asked.channel.encode()):
            raise ApiError(400, "INVALID_CHANNEL")
        rights_of(request).require(ADMIN, *about(asked))
        if asked.action == "redrive":
            for place in (asked.origin, *filter(None, (asked.to,))):
                rights_of(request).require(PUBLISH, place.partition("/")[0])
        if asked.action == "seek" and not (asked.channel and asked.to):
            raise ApiError(400, "INVALID_SEEK - channel and to are required")
        if asked.action in OF_LETTERS and (asked.channel or asked.offset < 0):
            raise ApiError(400, f"INVALID_CHANNEL - {asked.action} is about a topic of dead letters")
        if asked.action == "disconnect" and not (asked.channel and asked.client):
            raise ApiError(400, "INVALID_CLIENT - channel and client are required")
        if asked.action in ONE_NODE and len(asked.nodes) != 1:
            raise ApiError(400, "INVALID_NODES - one node")
        if asked.action in NAMED and not asked.preview and asked.confirm != name_of(asked):
            raise ApiError(400, f"NOT_CONFIRMED - confirm must be {name_of(asked)!r}")

    async def _check_ways(self, request: Request, asked: Asked, moment: Moment, nodes: Sequence[str]) -> None:
        """Raises ApiError if nodes would publish dead letters to a topic for a user who may not."""
        path, arguments = subject(asked.topic, asked.channel)
        found = await self._view.fleet.ask_all(nodes, Ask("GET", target(f"/{path}/rules", **arguments)), json_of)
        now: list[Mapping[str, object]] = [*found.answers.values()] or [{}]
        if not asked.channel and asked.topic in moment.topics:
            now += [row.rules or {} for row in moment.topics[asked.topic].channels.values()]
        changes = {key: value for key, value in asked.rules.items() if value is not None}
        named = changes.get("dead_letter")
        topics = {dead_topic(asked.topic, set_rules({**rules, **changes})) for rules in now}
        topics.add(named if isinstance(named, str) else "")
        for topic in sorted(topics - {""}):
            rights_of(request).require(PUBLISH, topic)

    def _nodes(self, moment: Moment, asked: Asked) -> list[str]:
        """The nodes that an action is for, those that do not answer included: their result is the error."""
        unknown = [node for node in asked.nodes if node not in moment.nodes]
        if unknown:
            raise ApiError(404, f"NODE_NOT_FOUND - {unknown[0]!r}")
        return asked.nodes or [*moment.nodes]

    async def _carried_out(self, asked: Asked, nodes: Sequence[str]) -> list[Result]:
        changes = self._view.changes
        topic, channel, action = asked.topic, asked.channel, asked.action
        if action == "create":
            return await changes.create(topic, channel, await self._creating(asked, nodes))
        if action == "tombstone":
            return await changes.tombstone(topic, nodes[0])
        if action == "drain":
            path = target("/drain", timeout=asked.timeout or None, keep="true" if asked.keep else None)
            return await self._send(nodes, Ask("POST", path))
        if action == "undrain":
            return await self._send(nodes, Ask("DELETE", "/drain"))
        if action == "rules":
            path, arguments = subject(topic, channel)
            return await self._send(nodes, Ask("PUT", target(f"/{path}/rules", **arguments), encode(asked.rules)))
        having = asked.nodes or await self._having(asked, nodes)
        if action == "delete":
            return await changes.delete(topic, channel, having)
        if action in OF_LETTERS:
            return await move(self._view.fleet, having, action, letters_of(asked))
        if action == "disconnect":
            return await self._send(having, Ask("POST", target("/channel/disconnect", topic=topic, channel=channel,
                                                               client=asked.client)))
        if action == "seek":
            return await self._send(having, Ask("POST", target("/channel/seek", topic=topic, channel=channel,
                                                               to=asked.to)))
        return await changes.act(action, topic, channel, having)

    async def _creating(self, asked: Asked, nodes: Sequence[str]) -> Sequence[str]:
        """Where to create: on the nodes that were chosen; a channel, on those that have its topic. With a lookup server
        nodes take a topic when it is first published to."""
        if asked.nodes or not self._view.fleet.has_lookupds:
            return nodes
        return await self._having(asked, nodes) if asked.channel else []

    async def _having(self, asked: Asked, nodes: Sequence[str]) -> list[str]:
        """The nodes that have the topic, and those that do not answer and may have it."""
        ask = Ask("GET", target("/stats", format="json", topic=asked.topic, include_clients="false",
                                include_mem="false"))
        found = await self._view.fleet.ask_all(nodes, ask, json_of)
        having = []
        for node in nodes:
            topics = listed(found.answers.get(node, {}).get("topics"))
            with_channel = not asked.channel or asked.action == "create" or any(
                channel.get("channel_name") == asked.channel for topic in topics
                for channel in listed(topic.get("channels")))
            if node in found.errors or (topics and with_channel):
                having.append(node)
        return having

    async def _send(self, nodes: Sequence[str], ask: Ask) -> list[Result]:
        return await send(self._view.fleet, places(NSQD, nodes), ask)

    def _notify(self, request: Request, asked: Asked) -> None:
        """As for the same change by nsqadmin's API."""
        kind = "channel" if asked.channel else "topic"
        if asked.action == "tombstone":
            self._view.notify("tombstone_topic_producer", request, topic=asked.topic, node=asked.nodes[0])
        elif asked.action in ("create", "delete", *PLAIN, "seek", "disconnect", "rules", *OF_LETTERS):
            self._view.notify(f"{asked.action}_{kind}", request, topic=asked.topic, channel=asked.channel)

    # ------------------------------------------------------------------ previews

    async def _preview(self, asked: Asked, nodes: Sequence[str]) -> list[Json]:
        """The effect of a change, for each node that has the topic or channel."""
        if asked.action in OF_LETTERS:
            having = asked.nodes or await self._having(asked, nodes)
            return await preview(self._view.fleet, having, asked.action, letters_of(asked))
        if asked.action != "seek":
            raise ApiError(400, f"INVALID_PREVIEW - one of seek, {', '.join(OF_LETTERS)}")
        parts = await asyncio.gather(*(self._preview_one(asked, node) for node in await self._having(asked, nodes)))
        return [*parts]

    async def _preview_one(self, asked: Asked, node: str) -> Json:
        fleet = self._view.fleet
        try:
            log = await fleet.get(node, Ask("GET", target("/topic/log", topic=asked.topic)), json_of)
            first, following = whole(log, "first_offset"), whole(log, "next_offset")
            position = oldest = following
            for channel in listed(log.get("channels")):
                if channel.get("channel_name") == asked.channel:
                    position, oldest = whole(channel, "position"), whole(channel, "oldest_unfinished")
            place = await self._offset_of(asked, node, first, following)
        except UpstreamError as error:
            return {"node": node, "error": error.short}
        if not first <= place <= following:
            return {"node": node, "error": f"offset {place} does not exist: the log has {first} to {following}"}
        return {"node": node, "from": position, "target": place, "first": first, "end": following,
                "again": max(position - place, 0), "left_out": max(place - oldest, 0)}

    async def _offset_of(self, asked: Asked, node: str, first: int, following: int) -> int:
        """The offset that a place means on a node. Raises UpstreamError."""
        to = asked.to
        if to in ("beginning", "end"):
            return first if to == "beginning" else following
        if to.isascii() and to.isdigit() and len(to) < 20:
            return int(to)
        ask = Ask("GET", target("/topic/read", topic=asked.topic, time=to, max_messages=1, max_bytes=1), accept=LINES)
        answer = await self._view.fleet.answer(node, ask)
        if answer.status != 200:
            raise UpstreamError(f"{asked.to!r} is not a place in the log", answer.status)
        text = answer.headers.get("x-nsq-first-offset", "")
        return int(text) if text.isdigit() else following


def whole(answer: Json, key: str) -> int:
    """A whole number of an answer. Raises UpstreamError."""
    value = answer.get(key)
    if not isinstance(value, int):
        raise UpstreamError(f"the answer has no {key}")
    return value


def letters_of(asked: Asked) -> Letters:
    """The dead letters that are meant."""
    return Letters(asked.topic, asked.origin, asked.id, asked.offset, asked.source, asked.to)


def about(asked: Asked) -> tuple[str, str]:
    """The topic and the channel that a grant has to cover. Creating a channel creates its topic where it is missing;
    redriven letters go to any topic."""
    if asked.action == "redrive":
        return "", ""
    return asked.topic, "" if asked.action in ("create", "tombstone") else asked.channel


def name_of(asked: Asked) -> str:
    """The name that the user has to type."""
    if asked.action == "drain":
        return asked.nodes[0] if asked.nodes else ""
    return asked.channel or asked.topic


def subject_of(asked: Asked) -> str:
    """The object of an action, for the audit log."""
    name = f"{asked.topic}/{asked.channel}" if asked.channel else asked.topic
    where = f" on {', '.join(asked.nodes)}" if asked.nodes else ""
    more = f" to {asked.to}" if asked.to else f" of {asked.origin}" if asked.origin else ""
    more += f" id {asked.id}" if asked.id else ""
    more += f" client {asked.client}" if asked.client else ""
    return f"{name}{more}{where}".strip()
