"""The grammar of Go's regular expressions: text to nodes, for patterns.py.

Names are ASCII, so a set of characters is an integer with a bit for each. Without line feeds in names the flags m and s
change nothing, and neither does U, nor greediness, where only yes or no is asked for.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

MAX_DEPTH = 100
MAX_REPEAT = 1000

ALL = (1 << 128) - 1
BEGIN, END, WORD_EDGE, NO_WORD_EDGE = range(4)

# A node is a tuple: its kind, then
CAT = "cat"         # nodes in order
ALT = "alt"         # nodes, one of which
SET = "set"         # the characters
AT = "at"           # a condition on the place
REPEAT = "repeat"   # node, least, most (None: any number)
Node = tuple[Any, ...]


class PatternError(ValueError):
    """An expression that Go would refuse, too."""


def bits(chars: str) -> int:
    """A set of characters; those beyond ASCII are in no name."""
    return sum({1 << ord(char) for char in chars if char < "\x80"})


def between(low: str, high: str) -> int:
    """The set from low to high."""
    return bits("".join(map(chr, range(ord(low), min(ord(high), 127) + 1))))


def folded(chars: int) -> int:
    """A set with both cases of its letters."""
    upper, lower = chars & between("A", "Z"), chars & between("a", "z")
    return chars | upper << 32 | lower >> 32


DIGITS, UPPER, LOWER = between("0", "9"), between("A", "Z"), between("a", "z")
WORDS = DIGITS | UPPER | LOWER | bits("_")
PERL = {"d": DIGITS, "s": bits("\t\n\f\r "), "w": WORDS}
POSIX = {
    "alnum": DIGITS | UPPER | LOWER, "alpha": UPPER | LOWER, "ascii": ALL, "blank": bits("\t "),
    "cntrl": between("\0", "\x1f") | bits("\x7f"), "digit": DIGITS, "graph": between("!", "~"), "lower": LOWER,
    "print": between(" ", "~"), "punct": between("!", "/") | between(":", "@") | between("[", "`") | between("{", "~"),
    "space": bits("\t\n\v\f\r "), "upper": UPPER, "word": WORDS,
    "xdigit": DIGITS | between("A", "F") | between("a", "f"),
}
CATEGORIES = frozenset({
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"})
PLAIN_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
PLACES = {"A": BEGIN, "z": END, "b": WORD_EDGE, "B": NO_WORD_EDGE}
BRACES = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
GROUP_NAME = re.compile(r"\?P?<([A-Za-z0-9_]+)>")
GROUP_FLAGS = re.compile(r"\?([imsU]*)(-[imsU]+)?([:)])")
HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\})")
OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")


def parse(text: str) -> Node:
    """The node of an expression. Raises PatternError."""
    return _Parser(text).parse()


class _Parser:
    """What is left of a text, and what is in force there."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.depth = 0
        self.fold = False
        self.names: set[str] = set()

    def parse(self) -> Node:
        node = self.alternation()
        if self.at < len(self.text):
            raise PatternError("unexpected )")
        return node

    def looking_at(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, what: str) -> str:
        """The next character."""
        if self.at >= len(self.text):
            raise PatternError(f"{what} at the end of the expression")
        self.at += 1
        return self.text[self.at - 1]

    def alternation(self) -> Node:
        branches = [self.sequence()]
        while self.looking_at("|"):
            self.at += 1
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else (ALT, *branches)

    def sequence(self) -> Node:
        items: list[Node] = []
        repeated = False
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            span = self.repetition()
            if span is None:
                items += self.atom()
                repeated = False
                continue
            if not items:
                raise PatternError("missing argument to repetition operator")
            if repeated:
                raise PatternError("invalid nested repetition operator")
            items[-1] = (REPEAT, items[-1], *span)
            if not may_repeat(items[-1], MAX_REPEAT):
                raise PatternError("invalid repeat count")
            repeated = True
        return (CAT, *items)

    def repetition(self) -> tuple[int, int | None] | None:
        """Least and most of the repetition operator that stands here; None: there is none."""
        char = self.text[self.at]
        if char in "*+?":
            self.at += 1
            span = (int(char == "+"), 1 if char == "?" else None)
        else:
            found = BRACES.match(self.text, self.at)
            if found is None:
                return None
            self.at = found.end()
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
                raise PatternError("invalid repeat count")
            span = (least, most)
        if self.looking_at("?"):
            self.at += 1
        return span

    def atom(self) -> list[Node]:
        """The next item; none where only flags change, several for quoted text."""
        char = self.take("nothing")
        if char == "(":
            return self.group()
        if char == "[":
            return [(SET, self.char_class())]
        if char == ".":
            return [(SET, ALL)]
        if char in "^$":
            return [(AT, BEGIN if char == "^" else END)]
        if char == "\\":
            return self.escape()
        return [self.literal(char)]

    def literal(self, char: str) -> Node:
        if self.fold:
            char = {"\u212a": "k", "\u017f": "s"}.get(char, char)
            return (SET, folded(bits(char)))
        return (SET, bits(char))

    # ------------------------------------------------------------------ groups

    def group(self) -> list[Node]:
        fold = self.fold
        if self.looking_at("?"):
            named = GROUP_NAME.match(self.text, self.at)
            flags = GROUP_FLAGS.match(self.text, self.at)
            if named:
                if named[1] in self.names:
                    raise PatternError(f"duplicate group name {named[1]}")
                self.names.add(named[1])
                self.at = named.end()
            elif flags:
                self.at = flags.end()
                self.fold = "i" not in (flags[2] or "") and (self.fold or "i" in flags[1])
                if flags[3] == ")":
                    return []
            else:
                raise PatternError("invalid or unsupported Perl syntax")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        node = self.alternation()
        if self.at >= len(self.text):
            raise PatternError("missing closing )")
        self.at += 1
        self.depth -= 1
        self.fold = fold
        return [node]

    # ------------------------------------------------------------------ escapes

    def escape(self) -> list[Node]:
        char = self.take("trailing backslash")
        if char in PLACES:
            return [(AT, PLACES[char])]
        if char == "Q":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at:] if end < 0 else self.text[self.at:end]
            self.at = len(self.text) if end < 0 else end + 2
            return [self.literal(one) for one in quoted]
        if char == "E":
            return []
        chars = self.escaped_set(char)
        return [self.literal(self.escaped_char(char)) if chars is None else (SET, chars)]

    def escaped_set(self, char: str) -> int | None:
        """The set that the escape with this character stands for; None: it is none."""
        if char.lower() in PERL:
            chars = PERL[char.lower()]
            return chars if char.islower() else ALL & ~chars
        if char not in "pP":
            return None
        name = self.take("invalid character class range")
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise PatternError("invalid character class range")
            name, self.at = self.text[self.at:end], end + 1
        negated = (char == "P") != name.startswith("^")
        chars = unicode_set(name.removeprefix("^"))
        chars = folded(chars) if self.fold else chars
        return ALL & ~chars if negated else chars

    def escaped_char(self, char: str) -> str:
        if char in PLAIN_ESCAPES:
            return PLAIN_ESCAPES[char]
        if char < "\x80" and not char.isalnum():
            return char
        for pattern, base in ((HEX, 16), (OCTAL, 8)):
            found = pattern.match(self.text, self.at - 1)
            if found:
                self.at = found.end()
                code = int(found[0] if base == 8 else found[1] or found[2], base)
                if code > 0x10FFFF:
                    break
                return chr(code)
        raise PatternError(f"invalid escape sequence \\{char}")

    # ------------------------------------------------------------------ [...]

    def char_class(self) -> int:
        negated = self.looking_at("^")
        self.at += negated
        chars, first = 0, True
        while first or not self.looking_at("]"):
            first = False
            chars |= self.class_item()
        self.at += 1
        chars = folded(chars) if self.fold else chars
        return ALL & ~chars if negated else chars

    def class_item(self) -> int:
        if self.looking_at("[:"):
            end = self.text.find(":]", self.at + 2)
            if end >= 0:
                name = self.text[self.at + 2:end]
                if name.removeprefix("^") not in POSIX:
                    raise PatternError(f"invalid character class range [:{name}:]")
                self.at = end + 2
                chars = POSIX[name.removeprefix("^")]
                return ALL & ~(folded(chars) if self.fold else chars) if name.startswith("^") else chars
        char = self.take("missing closing ]")
        if char == "\\":
            char = self.take("trailing backslash")
            chars = self.escaped_set(char)
            if chars is not None:
                return chars
            char = self.escaped_char(char)
        if not self.looking_at("-") or self.text.startswith("-]", self.at):
            return bits(char)
        self.at += 1
        high = self.take("missing closing ]")
        if high == "\\":
            high = self.escaped_char(self.take("trailing backslash"))
        if high < char:
            raise PatternError(f"invalid character class range {char}-{high}")
        return between(char, high)


def unicode_set(name: str) -> int:
    """The ASCII members of a Unicode category or script."""
    if name == "Any":
        return ALL
    if name == "Latin":
        return UPPER | LOWER
    if name == "Common":
        return ALL & ~(UPPER | LOWER)
    if name not in CATEGORIES:
        raise PatternError(f"invalid character class range \\p{{{name}}}")
    return bits("".join(chr(code) for code in range(128) if unicodedata.category(chr(code)).startswith(name)))


def may_repeat(node: Node, most: int) -> bool:
    """Whether repetitions within repetitions stay within most altogether."""
    if node[0] == REPEAT:
        times = node[2] if node[3] is None else node[3]
        return times <= most and may_repeat(node[1], most // max(1, times))
    return node[0] not in (CAT, ALT) or all(may_repeat(one, most) for one in node[1:])
