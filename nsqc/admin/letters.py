"""Dead letters that leave their topic by the page: redriven to the channels that they come from, or dropped."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nsqc.admin.changes import UNCERTAIN, Result
from nsqc.admin.fleet import NSQD, Fleet
from nsqc.admin.upstream import Ask, UpstreamError, target
from nsqc.admin.view import json_of, listed
from nsqc.wire.outside import Json

DONE = {"redrive": "redriven", "drop": "dropped"}   # of the actions: what nodes call that
AT_ONCE = 1000              # letters of one call
GONE = "it was redriven or dropped before"
# Anyone may pose as a node, and name a next place without end.
LONGEST_S = 600.0           # of the calls of one node; a user repeats an action that takes longer
MOST_CALLS = 100_000
LONGEST_NAME = 200          # characters of an origin or a reason
MOST_REASONS = 100          # for which letters stay; others are summed


class Letters(NamedTuple):
    """Letters of a dead-letter topic. origin: only those of TOPIC/CHANNEL; id: only the one at this offset."""

    topic: str
    origin: str
    id: str
    offset: int

    def ask(self, action: str, begin: int, dry_run: bool) -> Ask:
        """The next call."""
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
        text = error.word or (str(error) if status else f"{error} ({UNCERTAIN})")
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
    begin, count, skipped = letters.offset, 0, Counter[tuple[str, str]]()
    until = time.monotonic() + LONGEST_S
    for _ in range(MOST_CALLS):
        page = await fleet.get(node, letters.ask(action, begin, dry_run), json_of)
        moved, following = page.get(DONE[action]), page.get("next")
        stay = [(one, one.get("count")) for one in listed(page.get("skipped"))]
        if not isinstance(moved, int) or moved < 0 or not all(isinstance(number, int) for _, number in stay):
            raise UpstreamError("the node does not answer as nsqc does")
        count += moved
        for one, number in stay:
            key = str(one.get("origin") or "")[:LONGEST_NAME], str(one.get("reason"))[:LONGEST_NAME]
            skipped[key if key in skipped or len(skipped) < MOST_REASONS else ("", "other reasons")] += number
        # A place that does not move would be asked for without end.
        if letters.id or not isinstance(following, int) or (following <= begin and not moved):
            return Moved(count, skipped)
        if time.monotonic() > until:
            break
        begin = following
    return Moved(count, skipped, more=True)
