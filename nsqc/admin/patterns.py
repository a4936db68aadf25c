"""Searches names: for a text, or for a regular expression between slashes, such as /^orders\\.(eu|us)$/.

Regular expressions become automata, so that a search takes time proportional to the names for any expression:
Python's own engine may need years for one name. They have groups, |, *, +, ?, sets, ., ^, $, \\d, \\w and escaped
characters; no backreferences and no numbers of repetitions. Case does not matter.
"""

from __future__ import annotations

import string
from collections.abc import Callable

LONGEST = 200           # characters of a regular expression
MOST_STEPS = 20_000     # that are kept
# Both ends of a name are characters, so ^ and $ are no special case.
BEGIN, END = "\x02", "\x03"
CLASSES = {"d": string.digits, "w": string.ascii_lowercase + string.digits + "_"}
Symbol = Callable[[str], bool]


def finder(text: str) -> Callable[[str], bool]:
    """Whether a name has the text, or the expression between slashes, in it. Raises ValueError."""
    if len(text) > 2 and text[0] == text[-1] == "/":
        return Expression(text[1:-1]).found_in
    wanted = text.lower()
    return lambda name: wanted in name.lower()


class Expression:
    """An automaton without empty transitions: each bit of a state is a symbol of the expression that has just matched.
    Raises ValueError with the fault and its place."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"a regular expression has at most {LONGEST} characters")
        self._text, self._at = text, 0
        self._symbols: list[Symbol] = []
        self._after: list[int] = []     # of each symbol: those that may follow
        self._steps: dict[tuple[int, str], int] = {}
        self._empty, self._first, self._last = self._any()
        if self._at < len(text):
            raise self._fault("nothing opens this )")

    def found_in(self, name: str) -> bool:
        """Whether any part of the name matches."""
        state, steps = 0, self._steps
        for char in (BEGIN, *name.lower(), END):
            following = steps.get((state, char))
            if following is None:
                following = self._step(state, char)
            state = following
            if state & self._last:
                return True
        return self._empty

    def _step(self, state: int, char: str) -> int:
        reached = self._first
        for number, after in enumerate(self._after):
            if state >> number & 1:
                reached |= after
        matched = sum(1 << number for number, symbol in enumerate(self._symbols)
                      if reached >> number & 1 and symbol(char))
        if len(self._steps) >= MOST_STEPS:
            self._steps.clear()
        self._steps[state, char] = matched
        return matched

    # ------------------------------------------------------------------ parsing
    # Each part returns whether it may be empty, and its first and last symbols.

    def _fault(self, text: str) -> ValueError:
        return ValueError(f"{text}, at character {self._at + 1} of the regular expression")

    def _next(self) -> str:
        return self._text[self._at:self._at + 1]

    def _any(self) -> tuple[bool, int, int]:
        empty, first, last = self._sequence()
        while self._next() == "|":
            self._at += 1
            more = self._sequence()
            empty, first, last = empty or more[0], first | more[1], last | more[2]
        return empty, first, last

    def _sequence(self) -> tuple[bool, int, int]:
        empty, first, last = True, 0, 0
        while self._next() not in ("", "|", ")"):
            part = self._repeated()
            self._link(last, part[1])
            first |= part[1] if empty else 0
            last = part[2] | (last if part[0] else 0)
            empty = empty and part[0]
        return empty, first, last

    def _link(self, before: int, after: int) -> None:
        for number in range(len(self._after)):
            if before >> number & 1:
                self._after[number] |= after

    def _repeated(self) -> tuple[bool, int, int]:
        empty, first, last = self._one()
        while (sign := self._next()) in ("*", "+", "?") and sign:
            self._at += 1
            empty = empty or sign != "+"
            if sign != "?":
                self._link(last, first)
        return empty, first, last

    def _one(self) -> tuple[bool, int, int]:
        char = self._next()
        if char == "(":
            self._at += 1
            part = self._any()
            if self._next() != ")":
                raise self._fault("a ) is missing")
            self._at += 1
            return part
        if char in "*+?{}":
            raise self._fault(f"{char} has no meaning here")
        self._symbols.append(self._symbol(char))
        self._after.append(0)
        bit = 1 << len(self._symbols) - 1
        return False, bit, bit

    def _symbol(self, char: str) -> Symbol:
        self._at += 1
        if char == "[":
            return self._set()
        if char == ".":
            return lambda given: given not in (BEGIN, END)
        if char == "\\":
            return self._escaped().__contains__
        return {"^": BEGIN, "$": END}.get(char, char.lower()).__eq__

    def _escaped(self) -> str:
        char = self._next()
        if not char or (char.isalnum() and char not in CLASSES):
            raise self._fault(f"\\{char} is not known")
        self._at += 1
        return CLASSES.get(char, char.lower())

    def _set(self) -> Symbol:
        negated = self._next() == "^"
        self._at += negated
        chars, first = "", True
        while (char := self._next()) != "]" or first:
            if not char:
                raise self._fault("a ] is missing")
            self._at += 1
            if char == "\\":
                char = self._escaped()
            elif self._next() == "-" and self._text[self._at + 1:self._at + 2] not in ("", "]"):
                last = self._text[self._at + 1]
                char = "".join(map(chr, range(ord(char), min(ord(last), 0x7f) + 1)))
                self._at += 2
            chars, first = chars + char.lower(), False
        self._at += 1
        return (lambda given: given not in chars and given not in (BEGIN, END)) if negated else chars.__contains__
