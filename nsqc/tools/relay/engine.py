"""Relays a feed to other nsqd: batches become MPUBs, and are finished when those are acknowledged. At least once."""

from __future__ import annotations

import json
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nsqc.client.commands import topic_name
from nsqc.client.errors import Refused
from nsqc.client.peers import ELSEWHERE
from nsqc.tools.lines import repack
from nsqc.tools.target import TOO_LARGE, Parcel, Target, packed
from nsqc.wire.outside import Decoder, JSONError, decode

if TYPE_CHECKING:
    from nsqc.client.options import Options
    from nsqc.tools.feed import Delivery, Feed
    from nsqc.tools.running import Stop


# ====================================================================== filtering
# Filters messages by a field of their JSON, and selects fields.

DECODER = Decoder(dict[str, msgspec.Raw])


class Filter(NamedTuple):
    """field: a required key; value: its required value, unless empty: a string equals the text, a number its value.
    kept: the fields to pass on; empty: all."""

    field: str
    value: str
    kept: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.field or self.kept)

    def apply(self, body: bytes) -> bytes | None:
        """The body to pass on; None: nothing, also if it is not a JSON object."""
        try:
            found = DECODER.decode(body)
        except JSONError:
            return None
        if self.field:
            if self.field not in found:
                return None
            if self.value and not matches(found[self.field], self.value):
                return None
        if not self.kept:
            return body
        # Values are copied verbatim, so no number changes.
        parts = [json.dumps(key, ensure_ascii=False).encode(errors="surrogatepass") + b":" + bytes(found[key])
                 for key in sorted(self.kept & found.keys())]
        return b"{" + b",".join(parts) + b"}"


def matches(raw: msgspec.Raw, wanted: str) -> bool:
    """Whether a JSON value is a string with this text, or a number of this value."""
    try:
        value: object = decode(bytes(raw))
    except JSONError:
        return False
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return float(value) == float(wanted)
    except (ValueError, OverflowError):
        return False


# ====================================================================== engine

BATCH_BYTES = 512 * 1024
BATCH_ROWS = 10_000
TICK_SECONDS = 0.2
PATIENCE_SECONDS = 2.0          # without any target, before messages are requeued
CLOSE_SECONDS = 10.0            # for answers at the end


class Plan(NamedTuple):
    """topic: of the targets, or empty for the same. prefers_fast: the target with the fewest outstanding answers,
    instead of round-robin. refused_delay: seconds until a refused message is retried. answered: called with the address
    and the seconds of each answer."""

    addresses: Sequence[str]
    topic: str
    rules: Filter
    prefers_fast: bool
    refused_delay: float
    answered: Callable[[str, float, int], None] | None = None


class Work(NamedTuple):
    """A parcel's context. since: when it was submitted."""

    delivery: Delivery
    since: float


class Engine:
    """say gets lines about targets and refused messages."""

    def __init__(self, feed: Feed, stop: Stop, plan: Plan, options: Options, say: Callable[[str], None]):
        self._feed, self._stop, self._plan, self._say = feed, stop, plan, say
        self._targets = [Target(address, options, stop.wake) for address in plan.addresses]
        self._turn = 0
        self._pending: deque[Parcel] = deque()
        self._arrived: deque[Delivery] = deque()
        self._lonely = 0.0              # since when no target is up
        self._is_held = False           # RDY is 0: no target is up
        self._told: dict[str, str] = {}     # last reported text per target
        self.relayed = self.dropped = self.refused = 0      # messages

    def run(self) -> None:
        """Runs until a signal. Raises ClientError, ToolError."""
        try:
            while not self._stop:
                self._arrived.extend(self._feed.receive(TICK_SECONDS))
                self._step()
            self._feed.limit(0)
            self._finish_begun()
        finally:
            for target in self._targets:
                self._unwatch(target)
                target.close()

    def _finish_begun(self) -> None:
        """Waits for outstanding answers; requeues everything else."""
        end = time.monotonic() + CLOSE_SECONDS
        for parcel in self._pending:
            self._requeue(parcel)
        self._pending.clear()
        while any(target.waiting for target in self._targets) and time.monotonic() < end:
            self._feed.receive(TICK_SECONDS)
            self._tend()
            for parcel in self._pending:
                self._requeue(parcel)
            self._pending.clear()

    def _step(self) -> None:
        self._tend()
        while self._arrived and not self._pending:
            self._pending.extend(self._parcels(self._arrived.popleft()))
            self._send()
        self._send()
        self._mind_targets()

    # ------------------------------------------------------------------ parcels

    def _parcels(self, delivery: Delivery) -> list[Parcel]:
        """Converts a delivery to MPUBs."""
        if not self._feed.is_live(delivery):
            return []
        name = topic_name(self._plan.topic or delivery.topic)
        line = b"MPUB %b\n" % name
        if self._plan.rules:
            return self._filtered(delivery, name, line)
        batch, ids = delivery.batch, bytes(delivery.ids)
        commands: list[bytes] = []
        pieces: list[bytes] = []
        at = 0
        while at < batch.count:
            command, end = repack(line, batch.bodies, batch.offsets, at, BATCH_ROWS, BATCH_BYTES)
            commands.append(command)
            pieces.append(ids[at * 16:end * 16])
            at = end
        parts = self._feed.parts(delivery, pieces) if len(pieces) > 1 else [delivery]
        return [Parcel(name, command, part.count, note=Work(part, 0.0))
                for command, part in zip(commands, parts, strict=True)]

    def _filtered(self, delivery: Delivery, name: bytes, line: bytes) -> list[Parcel]:
        batch, ids = delivery.batch, bytes(delivery.ids)
        bodies, offsets = bytes(batch.bodies), memoryview(batch.offsets).cast("B").cast("i")
        kept: list[bytes] = []
        kept_ids: list[bytes] = []
        other_ids: list[bytes] = []
        for row in range(batch.count):
            body = self._plan.rules.apply(bodies[offsets[row]:offsets[row + 1]])
            (other_ids if body is None else kept_ids).append(ids[row * 16:row * 16 + 16])
            if body is not None:
                kept.append(body)
        parts = self._feed.parts(delivery, (b"".join(kept_ids), b"".join(other_ids)))
        if other_ids:
            self.dropped += len(other_ids)
            self._feed.finish(parts[-1])
        return [packed(name, line, kept, False, Work(parts[0], 0.0))] if kept else []

    def _send(self) -> None:
        while self._pending:
            target = self._choose()
            if target is None:
                return
            parcel = self._pending.popleft()
            work = parcel.note
            assert isinstance(work, Work)
            if self._feed.is_live(work.delivery):
                parcel.note = Work(work.delivery, time.monotonic())
                target.submit(parcel)

    def _choose(self) -> Target | None:
        """The target for the next parcel; None if none has room."""
        count = len(self._targets)
        ready = [at % count for at in range(self._turn, self._turn + count) if self._targets[at % count].has_room]
        if not ready:
            return None
        chosen = min(ready, key=lambda at: len(self._targets[at].waiting)) if self._plan.prefers_fast else ready[0]
        self._turn = chosen + 1
        return self._targets[chosen]

    # ------------------------------------------------------------------ targets

    def _tend(self) -> None:
        for target in self._targets:
            failures, error = target.failures, target.error
            done, back = target.tend()
            self._watch(target)
            for parcel in done:
                self._acknowledged(target, parcel)
            if target.failures > failures or target.error is not error:
                self._failed(target, back)
            elif target.is_up and self._told.pop(target.address, ""):
                self._say(f"{target.address}: connected again")

    def _acknowledged(self, target: Target, parcel: Parcel) -> None:
        work = parcel.note
        assert isinstance(work, Work)
        self._feed.finish(work.delivery)
        self.relayed += parcel.count
        if self._plan.answered is not None:
            self._plan.answered(target.address, time.monotonic() - work.since, parcel.count)

    def _failed(self, target: Target, back: list[Parcel]) -> None:
        error = target.error
        if isinstance(error, Refused) and error.code not in ELSEWHERE and back:
            self._refused(target, back.pop(0), error)
        text = str(error)
        if self._told.get(target.address) != text:
            self._told[target.address] = text
            self._say(f"{text}; retrying")
        self._pending.extendleft(reversed(back))

    def _refused(self, target: Target, parcel: Parcel, error: Refused) -> None:
        """A target refused a message: halving finds it; a single message is retried much later."""
        work = parcel.note
        assert isinstance(work, Work)
        halves = parcel.halves() if error.code in TOO_LARGE else []
        target.failures, target.next_try = 0, 0.0
        if halves and self._feed.is_live(work.delivery):
            parts = self._feed.split(work.delivery, halves[0].count)
            for half, part in zip(reversed(halves), reversed(parts), strict=True):
                half.note = Work(part, 0.0)
                self._pending.appendleft(half)
            return
        self.refused += parcel.count
        self._say(f"{error}: {parcel.count} message{'' if parcel.count == 1 else 's'} not relayed, "
                  f"retrying in {self._plan.refused_delay:g} s")
        self._feed.requeue(work.delivery, round(self._plan.refused_delay * 1000))

    def _mind_targets(self) -> None:
        """Without any target, takes no messages, and requeues held ones after a while."""
        now = time.monotonic()
        if any(target.is_up for target in self._targets):
            self._lonely = 0.0
            if self._is_held:
                self._is_held = False
                self._feed.limit(None)
            return
        self._lonely = self._lonely or now
        if now - self._lonely < PATIENCE_SECONDS:
            return
        if not self._is_held:
            self._is_held = True
            self._feed.limit(0)
        for parcel in self._pending:
            self._requeue(parcel)
        self._pending.clear()
        while self._arrived:
            self._feed.requeue(self._arrived.popleft())

    def _requeue(self, parcel: Parcel) -> None:
        work = parcel.note
        assert isinstance(work, Work)
        self._feed.requeue(work.delivery)

    def _watch(self, target: Target) -> None:
        """Makes the feed's poll wake up for a target."""
        descriptor = target.fileno()
        if target.watched not in (-1, descriptor):
            self._unwatch(target)
        if descriptor >= 0:
            self._feed.watch(descriptor, select.POLLIN | (select.POLLOUT if target.wants_write else 0))
            target.watched = descriptor

    def _unwatch(self, target: Target) -> None:
        if target.watched >= 0:
            self._feed.watch(target.watched, 0)
            target.watched = -1
