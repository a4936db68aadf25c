"""A model of the chain of commits: every order of events, up to a bound, for two writers and one reader of a node's bucket.

The store is adversarial. A put, once sent, may land at any later time, or never, and again after what it created was
deleted; no answer is trusted. So lost answers, timeouts, repeats and overtaking need no steps of their own. Writers may die
or pause between any two steps, and list, read, and delete one object at a time.

A commit carries one message, as a data object that it names. A checkpoint packs all messages into one object of its own.
`Chain(without={"relist"})` breaks a rule; RULES has them all. What must hold in every state is in `fault`.
"""

from collections.abc import Iterator
from typing import NamedTuple

RULES = {
    "create": "a commit is created only if its number is free",
    "frozen": "what was once tried at a number is never changed",
    "fenced": "a writer that finds another's commit at its number stops for ever",
    "identity": "an existing commit is ours only if the writer id is",
    "previous": "a commit names its predecessor; readers and writers that see another one start over",
    "relist": "after a claim, checkpoints are listed again",
    "newest": "a claim is void if any newer checkpoint than the one read is there, not only one that covers the claim",
    "claims": "claims are never deleted",
    "proof": "deletions wait for a commit of ours after the newest checkpoint",
    "begun": "... that was begun when that checkpoint was known to be there",
    "names": "only objects that own or older checkpoints or commits named are deleted, never by listing",
    "data": "a commit is sent once the objects that it names are there",
}


class Commit(NamedTuple):
    epoch: int
    run: int                    # who wrote it
    message: int                # -1: a claim
    previous: tuple[int, int, int] | None

    @property
    def identity(self) -> tuple[int, int, int]:
        return self[:3]


class Checkpoint(NamedTuple):
    number: int                 # of the last commit that it covers
    epoch: int
    content: tuple[tuple[int, int], ...]        # messages, each with the number of its commit
    objects: frozenset          # that hold them
    last: tuple[int, int, int] | None           # identity of that commit


EMPTY = Checkpoint(0, 0, (), frozenset(), None)


class Place(NamedTuple):
    """How far somebody has read the chain."""

    base: Checkpoint
    next: int
    epoch: int
    content: tuple[tuple[int, int], ...]
    last: tuple[int, int, int] | None

    @property
    def messages(self) -> tuple[int, ...]:
        return tuple(message for message, _ in self.content)

    def objects(self, checkpoint: Checkpoint) -> frozenset:
        """Where the messages are, according to a checkpoint and the commits after it."""
        return checkpoint.objects | {message for message, number in self.content if number > checkpoint.number}


def at(base: Checkpoint) -> Place:
    return Place(base, base.number + 1, base.epoch, base.content, base.last)


class Writer(NamedTuple):
    phase: str                  # off, reading, claiming, listing, active
    run: int = -1
    place: Place = at(EMPTY)
    pending: Commit | None = None
    packed: Checkpoint | None = None            # sent, and not known to be there
    newest: Checkpoint = EMPTY  # that is known to be there
    proof: str = ""             # of owning the node since then: known, begun, done


OFF = Writer("off")


class State(NamedTuple):
    commits: tuple[tuple[int, Commit], ...] = ()        # sorted by number
    checkpoints: frozenset = frozenset()
    objects: frozenset = frozenset()
    sent: frozenset = frozenset()               # (number, Commit) or Checkpoint: puts that may land
    writers: tuple[Writer, ...] = (OFF, OFF)
    reader: Place | None = None
    acknowledged: frozenset = frozenset()
    truth: tuple[tuple[int, Commit], ...] = ()  # what was first created at each number
    messages: int = 0           # published so far
    runs: int = 0               # started so far
    wrong: str = ""             # what a step did wrong


class Chain(NamedTuple):
    runs: int = 2
    messages: int = 2
    checkpoints: int = 2
    numbers: int = 6
    reads: bool = False         # a reader by number (Spark) runs along
    deaths: bool = True
    without: frozenset = frozenset()

    def start(self) -> State:
        return State(reader=at(EMPTY) if self.reads else None)

    def follow(self, commits: dict[int, Commit], place: Place) -> Place | str:
        """One number further. "end": nothing is there; "over": start over."""
        commit = commits.get(place.next)
        if commit is None:
            return "end"
        if commit.previous != place.last and "previous" not in self.without:
            return "over"
        content = place.content
        if commit.message >= 0:
            content += (commit.message, place.next),
        return Place(place.base, place.next + 1, commit.epoch, content, commit.identity)

    def takeover(self, state: State) -> Place:
        """What somebody reads who starts now and is not disturbed."""
        commits, place = dict(state.commits), at(newest(state))
        while not isinstance(further := self.follow(commits, place), str):
            place = further
        return place

    # ------------------------------------------------------------------ steps

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """All that may happen next."""
        commits = dict(state.commits)
        yield from self.landings(state, commits)
        for index, writer in enumerate(state.writers):
            if writer.phase == "off":
                # The second writer starts after the first: the other order is the same.
                if state.runs < self.runs and (index == 0 or state.runs):
                    begun = Writer("reading", state.runs, at(newest(state)))
                    yield f"run {state.runs} starts from checkpoint {newest(state).number}", replace(
                        state, index, begun, runs=state.runs + 1)
                continue
            if self.deaths:
                yield f"run {writer.run} dies", replace(state, index, OFF)
            yield from getattr(self, writer.phase)(state, commits, index, writer)
        if state.reader is not None:
            further = self.follow(commits, state.reader)
            if further == "over":
                yield "the reader starts over", state._replace(reader=at(newest(state)))
            elif further != "end":
                yield f"the reader reads {state.reader.next}", state._replace(reader=further)
            elif newest(state).number > state.reader.base.number and newest(state).number >= state.reader.next:
                yield "the reader finds nothing and lists again", state._replace(reader=at(newest(state)))

    def landings(self, state: State, commits: dict[int, Commit]) -> Iterator[tuple[str, State]]:
        for put in state.sent:
            if isinstance(put, Checkpoint):
                if all(other.number != put.number for other in state.checkpoints):
                    yield f"checkpoint {put.number} lands", state._replace(checkpoints=state.checkpoints | {put})
                continue
            number, commit = put
            if number not in commits or ("create" in self.without and commits[number] != commit):
                first = all(number != other for other, _ in state.truth)
                yield f"{name(commit)} lands at {number}", state._replace(
                    commits=tuple(sorted({**commits, number: commit}.items())),
                    truth=tuple(sorted((*state.truth, put))) if first else state.truth)

    def reading(self, state: State, commits: dict[int, Commit], index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        further = self.follow(commits, writer.place)
        if further == "over":
            yield f"run {writer.run} starts over", replace(state, index, again(state, writer))
        elif further != "end":
            yield f"run {writer.run} reads {writer.place.next}", replace(state, index, writer._replace(place=further))
        elif writer.place.next <= self.numbers:
            claim = Commit(writer.place.epoch + 1, writer.run, -1, writer.place.last)
            yield f"run {writer.run} sends its claim of {writer.place.next}", replace(
                state, index, writer._replace(phase="claiming", pending=claim),
                sent=state.sent | {(writer.place.next, claim)})

    def claiming(self, state: State, commits: dict[int, Commit], index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        found = commits.get(writer.place.next)
        if found == writer.pending:
            yield f"run {writer.run} knows that its claim landed", replace(state, index, writer._replace(phase="listing"))
        elif found is not None:
            yield f"run {writer.run} finds {writer.place.next} taken", replace(state, index, again(state, writer))

    def listing(self, state: State, commits: dict[int, Commit], index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        place, there = writer.place, newest(state)
        void = there != place.base if "newest" not in self.without else there.number >= place.next
        if void and "relist" not in self.without:
            yield f"run {writer.run}'s claim is void", replace(state, index, again(state, writer))
            return
        owned = Place(place.base, place.next + 1, writer.pending.epoch, place.content, writer.pending.identity)
        yield f"run {writer.run} is active", replace(
            state, index, Writer("active", writer.run, owned, newest=place.base))

    def active(self, state: State, commits: dict[int, Commit], index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        place = writer.place
        if writer.pending is None:
            if place.next <= self.numbers and state.messages < self.messages:
                yield self.commit(state, index, writer)
        else:
            yield from self.outcome(state, commits, index, writer)
        yield from self.checkpoint(state, index, writer)
        yield from self.deletions(state, index, writer)

    def commit(self, state: State, index: int, writer: Writer) -> tuple[str, State]:
        place, message = writer.place, state.messages
        commit = Commit(place.epoch, writer.run, message, place.last)
        began = "begun" if writer.proof == "known" else writer.proof
        return f"run {writer.run} sends message {message} at {place.next}", replace(
            state, index, writer._replace(pending=commit, proof=began), messages=message + 1,
            objects=state.objects if "data" in self.without else state.objects | {message},
            sent=state.sent | {(place.next, commit)})

    def outcome(self, state: State, commits: dict[int, Commit], index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        place, pending = writer.place, writer.pending
        found = commits.get(place.next)
        if found is None:
            if "frozen" in self.without and state.messages < self.messages:
                yield self.commit(state, index, writer)
            return
        if found == pending or "identity" in self.without:
            proved = writer.proof == "begun" or (writer.proof == "known" and "begun" in self.without)
            further = Place(place.base, place.next + 1, place.epoch, (*place.content, (pending.message, place.next)),
                            pending.identity)
            yield f"run {writer.run} acknowledges message {pending.message}", replace(
                state, index, writer._replace(place=further, pending=None, proof="done" if proved else writer.proof),
                acknowledged=state.acknowledged | {pending.message})
        elif "fenced" in self.without:
            yield f"run {writer.run} tries the next number", replace(
                state, index, writer._replace(place=place._replace(next=place.next + 1, last=found.identity), pending=None))
        else:
            yield f"run {writer.run} is fenced", replace(
                state, index, OFF, wrong=f"run {writer.run} fenced itself" if found.run == writer.run else "")

    def checkpoint(self, state: State, index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        place, number = writer.place, writer.place.next - 1
        if writer.packed is not None:
            if writer.packed in state.checkpoints:
                yield f"run {writer.run} knows that checkpoint {writer.packed.number} landed", replace(
                    state, index, writer._replace(packed=None, newest=writer.packed, proof="known"))
        elif (number > writer.newest.number and len(checkpoints(state)) < self.checkpoints
                and place.objects(writer.newest) <= state.objects):
            packed = f"{writer.run}/{number}"
            put = Checkpoint(number, place.epoch, place.content, frozenset({packed}), place.last)
            yield f"run {writer.run} sends checkpoint {number}", replace(
                state, index, writer._replace(packed=put), objects=state.objects | {packed}, sent=state.sent | {put})

    def deletions(self, state: State, index: int, writer: Writer) -> Iterator[tuple[str, State]]:
        if not writer.proof or (writer.proof != "done" and "proof" not in self.without):
            return
        for number, commit in state.commits:
            if number <= writer.newest.number and (commit.message >= 0 or "claims" in self.without):
                yield f"run {writer.run} deletes commit {number}", state._replace(
                    commits=tuple(entry for entry in state.commits if entry[0] != number))
        needed = writer.place.objects(writer.newest)
        if writer.pending is not None:
            needed |= {writer.pending.message}
        known = {message for message, _ in writer.place.content} | writer.place.base.objects
        for unneeded in (known & state.objects if "names" not in self.without else state.objects) - needed:
            yield f"run {writer.run} deletes object {unneeded}", state._replace(objects=state.objects - {unneeded})

    # ------------------------------------------------------------------ what must hold

    def fault(self, state: State) -> str:
        """What is wrong in a state; empty: nothing."""
        if state.wrong:
            return state.wrong
        truth = tuple(commit.message for _, commit in state.truth if commit.message >= 0)
        takeover = self.takeover(state)
        if not state.acknowledged <= {*takeover.messages}:
            return f"{sorted(state.acknowledged)} are acknowledged, a takeover reads {takeover.messages}"
        if takeover.messages != truth:
            return f"a takeover reads {takeover.messages}, the chain said {truth}"
        if missing := takeover.objects(takeover.base) - state.objects:
            return f"a takeover misses objects {[*missing]}"
        owner = [commit.run for _, commit in state.truth if commit.message < 0][-1:]
        for writer in state.writers:
            if writer.phase == "active":
                if truth[:len(writer.place.content)] != writer.place.messages:
                    return f"run {writer.run} is active with {writer.place.messages}, the chain said {truth}"
                if owner == [writer.run] and (missing := writer.place.objects(writer.newest) - state.objects):
                    return f"the owner, run {writer.run}, relies on deleted {[*missing]}"
        if state.reader is not None and truth[:len(state.reader.content)] != state.reader.messages:
            return f"the reader saw {state.reader.messages}, the chain said {truth}"
        return ""


def newest(state: State) -> Checkpoint:
    return max(state.checkpoints, key=lambda checkpoint: checkpoint.number, default=EMPTY)


def checkpoints(state: State) -> list[Checkpoint]:
    return [put for put in state.sent if isinstance(put, Checkpoint)]


def again(state: State, writer: Writer) -> Writer:
    return Writer("reading", writer.run, at(newest(state)))


def replace(state: State, index: int, writer: Writer, **changes: object) -> State:
    writers = (*state.writers[:index], writer, *state.writers[index + 1:])
    return state._replace(writers=writers, **changes)


def name(commit: Commit) -> str:
    what = "claim" if commit.message < 0 else f"message {commit.message}"
    return f"the {what} of run {commit.run}, epoch {commit.epoch},"
