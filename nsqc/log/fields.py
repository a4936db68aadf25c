"""Finds the fields among the arguments of a log line: its topic, channel, client and so on.

The word before an argument names its field: nsqd's lines, and ours, have `TOPIC(%s)`, `channel(%s)` or `[%s]`. Formats
are literals of the source, and only arguments may come from clients, so no client can forge a field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsqc.log.levels import WARN

ARGUMENT = r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])"
# Field names, with the words before their arguments. If one word ends with another, the longer one comes first.
WORDS = (
    ("channel", ("CHANNEL(", "channel(", "channel ", "subkey:")),
    ("topic", ("TOPIC(", "topic(", "topic ", " key:")),
    ("log", ("LOG(",)),
    ("queue", ("DISKQUEUE(",)),
    ("client", ("client(", "CLIENT(", "[", "%d %s %s (", "handshake error from ")),
    ("node", ("producer@",)),
    ("peer", ("LOOKUPD(", "LOOKUP(", "LOOKUP connecting to ", "query nsqlookupd ", "statsd(")),
)
ERRORS = (" - ", "AUTH failed ", "LOOKUPD(%s): ")  # of warnings and errors
# Fields of which there are few, and lines about each of them are worth reading.
PLACES = ("topic", "channel", "queue", "log", "peer")
LONGEST_PLACE = 200  # characters, longer than valid names
MOST_FORMATS = 1000

Marks = tuple[tuple[str, int], ...]

_marks: dict[str, Marks] = {}  # by format, of which the source has a bounded number


def marks_of(text: str) -> Marks:
    """The field names of a format's arguments, with their indexes; an error is included at any level."""
    marks = _marks.get(text)
    if marks is None:
        if len(_marks) >= MOST_FORMATS:
            _marks.clear()
        marks = _marks[text] = tuple(_find(text))
    return marks


def _find(text: str) -> list[tuple[str, int]]:
    arguments = [found for found in re.finditer(ARGUMENT, text) if found[0] != "%%"]
    marks = []
    for index, found in enumerate(arguments):
        before = text[:found.start()]
        name = next((name for name, words in WORDS if before.endswith(words)), "")
        if name or before.endswith(ERRORS):
            marks.append((name or "error", index))
    return marks


def fields_of(level: int, text: str, arguments: Sequence[object]) -> dict[str, str]:
    """The fields of a line; those that would be empty are left out."""
    fields: dict[str, str] = {}
    for name, index in marks_of(text):
        if name == "error" and level < WARN:
            continue
        value = str(arguments[index])
        if name == "queue":
            # A channel's queue is named TOPIC:CHANNEL; names have no colon.
            fields["topic"], _, fields["channel"] = value.partition(":")
        elif name == "log":
            # The topic's name, or its folder.
            fields["topic"] = re.sub(r"^.*/|\.log(~\d+)?$", "", value) if "/" in value else value
        else:
            fields[name] = value
    return {name: value for name, value in fields.items() if value}


def kind_of(text: str, arguments: Sequence[object]) -> tuple[object, ...]:
    """The key that repeated lines share: the format, and its topic, channel or peer, but no client."""
    return (text, *[str(arguments[index])[:LONGEST_PLACE] for name, index in marks_of(text) if name in PLACES])
