"""The grammar of Go's flag package: of nsqd's, nsqlookupd's and nsqadmin's flags, and of those of NSQ's tools.

-name and --name are the same. A value follows after = or as the next word; for a boolean, after = only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from nsqc.options.option import Kind, Option

IMPLIED = {Kind.BOOL: "true", Kind.TLS_REQUIRED: "true"}    # the value of a flag alone


class FlagError(ValueError):
    """Flags that cannot be read; the text is for the user."""


class UnknownFlag(FlagError):
    """A flag that is not declared. name: without dashes."""

    def __init__(self, word: str, name: str):
        super().__init__(f"flag provided but not defined: -{name}")
        self.word, self.name = word, name


class HelpWanted(Exception):
    """One of the flags is -h, -help or --help."""


def flags_in(words: deque[str], known: Mapping[str, Option]) -> Iterator[tuple[Option, str]]:
    """Takes the flags from words: each with the text of its value. The first word that is not a flag, or --, ends them.
    Raises FlagError, HelpWanted."""
    while words and len(words[0]) > 1 and words[0][0] == "-":
        word = words.popleft()
        if word == "--":
            return
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {word}")
        option = known.get(name)
        if option is None:
            raise HelpWanted if name in ("h", "help") else UnknownFlag(word.partition("=")[0], name)
        if not equals:
            if option.kind not in IMPLIED and not words:
                raise FlagError(f"flag needs an argument: -{name}")
            text = IMPLIED[option.kind] if option.kind in IMPLIED else words.popleft()
        yield option, text
