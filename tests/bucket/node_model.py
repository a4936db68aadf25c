"""A model of two machines that run one node in turn: what their disks, `bucket.json` and the bucket have, whatever dies.

Here the chain of commits is one list that is appended to only at its end; chain_model.py shows that it may be seen so.
A log has messages with offsets, and one channel whose position is a record with a sequence number. Machines lose power
(what is not synced), their process, or their disk. `Node(without={"reserved"})` breaks a rule; RULES has them all.
"""

from collections.abc import Iterator
from typing import NamedTuple

RULES = {
    "journal": "a claim is in bucket.json before it is tried",
    "all tried": "bucket.json keeps all claims tried since the last that is known to have landed",
    "refuse": "files of an earlier epoch are refused",
    "append": "what the disk lacks after a power failure is appended from the bucket",
    "sequence": "of two positions of a channel the higher sequence number counts, not the higher position",
    "reserved": "after a takeover, offsets continue at a reserved one",
    "cursors first": "a note says first where channels are, then where logs end",
}
RESERVED = 10                   # offsets that each owner reserves, more than are ever used


class Entry(NamedTuple):
    """A commit: a claim, or what was shipped."""

    run: int
    machine: int
    is_claim: bool
    messages: tuple[tuple[int, int], ...] = ()          # offset, body
    cursor: tuple[int, int] = (0, 0)                    # sequence number, position


class Disk(NamedTuple):
    messages: tuple[tuple[int, int], ...] = ()
    cursor: tuple[int, int] = (0, 0)
    synced: tuple[tuple[tuple[int, int], ...], tuple[int, int]] = ((), (0, 0))
    runs: tuple[int, ...] = ()          # bucket.json
    next: int = 0                       # offset


class Process(NamedTuple):
    phase: str = "off"                  # off, claiming, active
    run: int = -1
    number: int = 0                     # of its claim
    shipped: int = 0                    # offset up to which all is in the bucket
    noted: tuple[int, int] | int | None = None          # the first half of a note


class State(NamedTuple):
    chain: tuple[Entry, ...] = ()
    flying: frozenset = frozenset()     # (number, claim) that may land
    disks: tuple[Disk, ...] = (Disk(), Disk())
    processes: tuple[Process, ...] = (Process(), Process())
    seen: frozenset = frozenset()       # (offset, body) by readers that trust a node
    bodies: int = 0
    moves: int = 0                      # of the channel
    runs: int = 0
    mishaps: int = 0
    wrong: str = ""


class Node(NamedTuple):
    bodies: int = 2
    moves: int = 2
    runs: int = 3
    mishaps: int = 2
    without: frozenset = frozenset()

    def start(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, claim in state.flying:
            if number == len(state.chain):
                yield f"the claim of run {claim.run} lands", state._replace(
                    chain=(*state.chain, claim), flying=state.flying - {(number, claim)})
        for index, (disk, process) in enumerate(zip(state.disks, state.processes, strict=True)):
            if process.phase == "off":
                if state.runs < self.runs:
                    yield self.begin(state, index, disk)
            else:
                if state.mishaps < self.mishaps:
                    yield from self.mishap(state, index, disk)
                yield from self.claiming(state, index, disk, process) if process.phase == "claiming" else self.active(
                    state, index, disk, process)

    # ------------------------------------------------------------------ starts

    def begin(self, state: State, index: int, disk: Disk) -> tuple[str, State]:
        """A start up to the first attempt of its claim."""
        run, owner = state.runs, next((entry for entry in reversed(state.chain) if entry.is_claim), None)
        known = owner is None or owner.run in disk.runs
        if (disk.messages or disk.cursor[0]) and not known and "refuse" not in self.without:
            needless = owner is not None and owner.machine == index
            return f"machine {index} refuses its files", state._replace(
                runs=run + 1, wrong="a machine refuses its own files" if needless else "")
        runs = disk.runs if "all tried" not in self.without else ()
        disk = disk._replace(runs=runs if "journal" in self.without else (*runs, run))
        return f"run {run} begins on machine {index}", change(
            state, index, disk, Process("claiming", run, len(state.chain)), runs=run + 1,
            flying=state.flying | {(len(state.chain), Entry(run, index, True))})

    def claiming(self, state: State, index: int, disk: Disk, process: Process) -> Iterator[tuple[str, State]]:
        if len(state.chain) <= process.number:
            return
        if state.chain[process.number].run == process.run:
            restored, shipped = self.restore(disk, state.chain[:process.number])
            yield f"run {process.run} owns the node", change(
                state, index, restored._replace(runs=(process.run,)), process._replace(phase="active", shipped=shipped))
        else:
            yield f"run {process.run} is too late", change(state, index, disk, Process())

    def restore(self, disk: Disk, chain: tuple[Entry, ...]) -> tuple[Disk, int]:
        """(what the disk has afterwards, the offset up to which the bucket has all)."""
        messages, cursor = content(chain)
        following = max(disk.next, end(disk.messages), end(messages))
        if "reserved" not in self.without:
            following = max(following, (sum(entry.is_claim for entry in chain) + 1) * RESERVED)
        if disk.messages or disk.cursor[0]:
            if "append" not in self.without:
                disk = disk._replace(messages=disk.messages + tuple(m for m in messages if m[0] >= end(disk.messages)))
            field = 1 if "sequence" in self.without else 0
            disk = disk._replace(cursor=max(cursor, disk.cursor, key=lambda place: place[field]))
        else:
            disk = disk._replace(messages=messages, cursor=cursor)
        return disk._replace(next=following), end(messages)

    # ------------------------------------------------------------------ a run

    def active(self, state: State, index: int, disk: Disk, process: Process) -> Iterator[tuple[str, State]]:
        if state.bodies < self.bodies:
            message = (disk.next, state.bodies)
            yield f"run {process.run} stores {message}", change(
                state, index, disk._replace(messages=(*disk.messages, message), next=disk.next + 1), process,
                bodies=state.bodies + 1)
        unseen = {*disk.messages} - state.seen
        if unseen:
            yield f"a reader sees {min(unseen)}", state._replace(seen=state.seen | {min(unseen)})
        if state.moves < self.moves:
            sequence, position = disk.cursor
            for moved in {end(disk.messages), 0} - {position}:
                yield f"the channel moves to {moved}", change(
                    state, index, disk._replace(cursor=(sequence + 1, moved)), process, moves=state.moves + 1)
        if disk.synced != (disk.messages, disk.cursor):
            yield f"machine {index} syncs", change(
                state, index, disk._replace(synced=(disk.messages, disk.cursor)), process)
        yield from self.shipping(state, index, disk, process)

    def shipping(self, state: State, index: int, disk: Disk, process: Process) -> Iterator[tuple[str, State]]:
        """In two steps, between which anything may happen."""
        first = "cursors first" not in self.without
        if process.noted is None:
            yield f"run {process.run} begins a note", change(
                state, index, disk, process._replace(noted=disk.cursor if first else end(disk.messages)))
            return
        cursor, until = (process.noted, end(disk.messages)) if first else (disk.cursor, process.noted)
        messages = tuple(message for message in disk.messages if process.shipped <= message[0] < until)
        if any(entry.is_claim and entry.run != process.run for entry in state.chain[process.number:]):
            yield f"run {process.run} is fenced", change(state, index, disk, Process())
        elif messages or cursor != content(state.chain)[1]:
            yield f"run {process.run} ships {messages}, {cursor}", change(
                state, index, disk, process._replace(noted=None, shipped=max(process.shipped, until)),
                chain=(*state.chain, Entry(process.run, index, False, messages, cursor)))

    def mishap(self, state: State, index: int, disk: Disk) -> Iterator[tuple[str, State]]:
        messages, cursor = disk.synced
        for what, after in (("is killed", disk), ("loses power", disk._replace(messages=messages, cursor=cursor)),
                            ("loses its disk", Disk())):
            yield f"machine {index} {what}", change(state, index, after, Process(), mishaps=state.mishaps + 1)

    # ------------------------------------------------------------------ what must hold

    def fault(self, state: State) -> str:
        """What is wrong in a state; empty: nothing."""
        if state.wrong:
            return state.wrong
        messages, cursor = content(state.chain)
        everywhere = {*messages, *state.seen}
        if len({offset for offset, _ in everywhere}) < len(everywhere):
            return f"two bodies for one offset: {sorted(everywhere)}"
        if [offset for offset, _ in messages] != sorted({offset for offset, _ in messages}):
            return f"the bucket has {messages}"
        if cursor[1] > end(messages):
            return f"the channel is at {cursor[1]}, the bucket ends at {end(messages)}"
        sequences = [entry.cursor[0] for entry in state.chain if not entry.is_claim]
        if sequences != sorted(sequences):
            return f"a move of the channel was undone: {sequences}"
        owner = next((entry.run for entry in reversed(state.chain) if entry.is_claim), None)
        for disk, process in zip(state.disks, state.processes, strict=True):
            common = tuple(message for message in disk.messages if message[0] < end(messages))
            if process.phase == "active" and process.run == owner and common != messages:
                return f"run {process.run} has {common}, the bucket {messages}"
        return ""


def content(chain: tuple[Entry, ...]) -> tuple[tuple[tuple[int, int], ...], tuple[int, int]]:
    """(messages, the channel's position) that a takeover restores."""
    shipped = [entry for entry in chain if not entry.is_claim]
    messages = tuple(message for entry in shipped for message in entry.messages)
    return messages, shipped[-1].cursor if shipped else (0, 0)


def end(messages: tuple[tuple[int, int], ...]) -> int:
    return messages[-1][0] + 1 if messages else 0


def change(state: State, index: int, disk: Disk, process: Process, **changes: object) -> State:
    def put(items: tuple, item: object) -> tuple:
        return (*items[:index], item, *items[index + 1:])

    return state._replace(disks=put(state.disks, disk), processes=put(state.processes, process), **changes)
