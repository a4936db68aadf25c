"""Regular expressions of auth servers, with the meaning that Go's regexp package gives them.

They are matched against names of topics and channels, which clients choose: whatever the expression, the time is linear
in the name. Python's own would take for ever on some.
"""

from __future__ import annotations

from functools import lru_cache

from nsqc.peers.goregex import ALT, AT, BEGIN, CAT, END, SET, WORD_EDGE, WORDS, Node, PatternError, parse

MAX_STATES = 20_000
KNOWN = 1024  # expressions kept compiled

CHAR, ASSERT, SPLIT, MATCH = range(4)


class _Machine:
    """Nodes to states: (kind, operand, next state), for SPLIT both next states."""

    def __init__(self, node: Node):
        self.states: list[tuple[int, int, int]] = []
        self.begin = self.emit(node, self.add(MATCH, 0, 0))

    def add(self, kind: int, operand: int, following: int) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError("expression too large")
        self.states.append((kind, operand, following))
        return len(self.states) - 1

    def emit(self, node: Node, following: int) -> int:
        """The state with which a node begins, if following comes behind it."""
        kind = node[0]
        if kind == SET:
            return self.add(CHAR, node[1], following)
        if kind == AT:
            return self.add(ASSERT, node[1], following)
        if kind == CAT:
            for one in reversed(node[1:]):
                following = self.emit(one, following)
            return following
        if kind == ALT:
            begin = self.emit(node[-1], following)
            for one in reversed(node[1:-1]):
                begin = self.add(SPLIT, self.emit(one, following), begin)
            return begin
        return self.emit_repeat(node[1], node[2], node[3], following)

    def emit_repeat(self, node: Node, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self.add(SPLIT, 0, following)
            self.states[loop] = (SPLIT, self.emit(node, loop), following)
            begin = loop
        else:
            begin = following
            for _ in range(most - least):
                begin = self.add(SPLIT, self.emit(node, begin), following)
        for _ in range(least):
            begin = self.emit(node, begin)
        return begin


class Pattern:
    """A compiled expression. anchored: it must match the whole of a name, not just a part."""

    __slots__ = ("_anchored", "_begin", "_literal", "_states")

    def __init__(self, text: str, anchored: bool = False):
        """Raises PatternError."""
        node = parse(text)
        self._anchored = anchored
        self._literal = literal_of(node, anchored)
        machine = _Machine(node)
        self._begin, self._states = machine.begin, machine.states

    def matches(self, name: str) -> bool:
        """Whether the expression matches."""
        if self._literal is not None:
            word, at_begin, at_end = self._literal
            if at_begin and at_end:
                return name == word
            return name.startswith(word) if at_begin else name.endswith(word) if at_end else word in name
        return self._run(name)

    def _run(self, name: str) -> bool:
        """Follows all ways through the states at the same time."""
        alive: set[int] = set()
        for at in range(len(name) + 1):
            if at == 0 or not self._anchored:
                alive.add(self._begin)
            ready = self._reach(alive, name, at)
            if ready is None:
                return True
            if at == len(name) or (self._anchored and not ready):
                return False
            bit = 1 << ord(name[at])
            alive = {state[2] for state in ready if state[1] & bit}
        return False

    def _reach(self, alive: set[int], name: str, at: int) -> list[tuple[int, int, int]] | None:
        """The characters that may come next; None: the expression has matched."""
        todo, seen, ready = list(alive), set(alive), []
        while todo:
            state = self._states[todo.pop()]
            kind = state[0]
            if kind == CHAR:
                ready.append(state)
                continue
            if kind == MATCH:
                if not self._anchored or at == len(name):
                    return None
                continue
            if kind == ASSERT and not holds(state[1], name, at):
                continue
            for one in state[1:] if kind == SPLIT else state[2:]:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
        return ready


def holds(place: int, name: str, at: int) -> bool:
    """Whether a condition on the place is met."""
    if place == BEGIN:
        return at == 0
    if place == END:
        return at == len(name)
    edge = is_word(name, at - 1) != is_word(name, at)
    return edge == (place == WORD_EDGE)


def is_word(name: str, at: int) -> bool:
    return 0 <= at < len(name) and bool(WORDS & 1 << ord(name[at]))


def literal_of(node: Node, anchored: bool) -> tuple[str, bool, bool] | None:
    """(word, at the begin, at the end) of an expression that is no more than that; None: it is more."""
    if node[0] != CAT:
        return None
    items = list(node[1:])
    at_begin, at_end = items[:1] == [(AT, BEGIN)], items[-1:] == [(AT, END)]
    word = items[at_begin:len(items) - at_end]
    if not all(one[0] == SET and one[1].bit_count() == 1 for one in word):
        return None
    text = "".join(chr(one[1].bit_length() - 1) for one in word)
    return text, at_begin or anchored, at_end or anchored


@lru_cache(maxsize=KNOWN)
def compiled(text: str, anchored: bool) -> Pattern:
    """A Pattern; those used last are kept. Raises PatternError."""
    return Pattern(text, anchored)
