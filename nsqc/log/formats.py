"""The forms of a log line: nsqd's, nsqd's with journald's priority, JSON and logfmt.

All texts are one_line()'s: without terminal controls, and of bounded length.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

# ====================================================================== levels
# Levels of log lines. Their numbers are nsqd's.

DEBUG, INFO, WARN, ERROR, FATAL = 1, 2, 3, 4, 5
AUDIT = 6      # of the audit log; always written
# As in nsqd's lines.
WORDS: Final = {DEBUG: "DEBUG", INFO: "INFO", WARN: "WARNING", ERROR: "ERROR", FATAL: "FATAL", AUDIT: "AUDIT"}
# As in --log-level, the config file and PUT /config/log_level.
LEVELS: Final = {"debug": DEBUG, "info": INFO, "warn": WARN, "error": ERROR, "fatal": FATAL}


# ====================================================================== visible
# Escapes for untrusted text on terminals: control characters, and characters that reorder or hide text.

# Controls (DEL, C1), line separators, bidirectional and invisible marks, lone surrogates.
_OBEYED = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
_ANY = re.compile(f"[\x00-\x1f{_OBEYED}]")
_NOT_LAYOUT = re.compile(f"[\x00-\x08\x0b-\x1f{_OBEYED}]")
_IN_JSON = re.compile(f"[{_OBEYED}]")


def visible(text: str) -> str:
    """Text in one line, with escapes such as \\n, \\x1b and \\u202e."""
    return _ANY.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Like visible(), but keeps newlines and tabs."""
    return _NOT_LAYOUT.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """visible_lines() for UTF-8; invalid bytes become escapes such as \\xff."""
    return visible_lines(data.decode(errors="backslashreplace")).encode()


def visible_json(text: str) -> str:
    """JSON with such characters escaped. The result stays valid: they occur within strings only, and the encoder has
    already escaped those below U+0020."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


# ====================================================================== secrets
# Passwords in URLs, and tokens, which nothing shows: no line of the log, no page, no error.

MASK = "xxxxx"      # as in Go's url.Redacted
# After the user of a URL, up to the last @ before the next URL: a password may have been written without escapes. A
# port is none.
_IN_URL = re.compile(r"(://[^\s/?#@:\[]*:)(?!\d*(?:[\s/?#]|$))(?:(?!://)\S)*@")
_IN_ADDRESS = re.compile(r"((?:[A-Za-z][\w+.-]*://)?[^\s/?#@:\[]*:)(?!\d*(?:[/?#]|$)).*@", re.DOTALL)
_FLAG = re.compile(r"--?[\w-]+=")
_IN_TOKEN = re.compile(r"(nsqc_[0-9a-f]{12}_)[\w-]+")         # see nsqc.access.rules


def mask(text: str) -> str:
    """Any text, with xxxxx in place of the password of each URL and the secret of each token in it."""
    if "nsqc_" in text:
        text = _IN_TOKEN.sub(rf"\1{MASK}", text)
    return _IN_URL.sub(rf"\1{MASK}@", text) if "@" in text and "://" in text else text


def mask_address(text: str) -> str:
    """The value of an option: a URL, or USER:PASSWORD@HOST:PORT."""
    match = _IN_ADDRESS.match(text) if "@" in text else None
    return mask(text) if match is None else f"{match[1]}{MASK}@{text[match.end():]}"


def mask_word(word: str) -> str:
    """A word of a command line: a flag with its value, or a value."""
    flag = _FLAG.match(word)
    start = 0 if flag is None else flag.end()
    return word[:start] + mask_address(word[start:])


# ====================================================================== fields
# Finds the fields among the arguments of a log line: its topic, channel, client and so on.
#
# The word before an argument names its field: nsqd's lines, and ours, have `TOPIC(%s)`, `channel(%s)` or `[%s]`.
# Formats are literals of the source, and only arguments may come from clients, so no client can forge a field.

ARGUMENT = r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])"
# Field names, with the words before their arguments. If one word ends with another, the longer one comes first.
FIELD_WORDS = (
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
        name = next((name for name, words in FIELD_WORDS if before.endswith(words)), "")
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


# ====================================================================== repeats
# Repeated warnings and errors: the first are written, the others are counted, and the count is written each minute.
#
# Lines of one kind have the same format and concern the same topic, channel or peer; see kind_of().

EVERY_S = 60.0      # time that lines of a kind are counted before their number is written
MOST_LINES = 10     # of a kind with different texts, in that time
MOST_LOOKS = 1000   # at lines of a kind, to compare their texts
MOST_KINDS = 512    # at once; further ones are distinguished by their format only
EXAMPLE = 200       # characters of the line that represents the others
OF_ONE_LINE = ("client", "error")  # fields that the others do not share


class Kind:
    """One kind, since its first line. The only logger of a kind may count lines here itself while it is_full."""

    __slots__ = ("began", "count", "example", "fields", "is_over", "level", "written")

    def __init__(self, began: float, level: int):
        self.began = began                      # monotonic seconds
        self.level = level
        self.example = ""                       # the last line that was written
        self.fields: Mapping[str, str] = {}     # that all of them share
        self.written: set[int] = set()          # hashes of the lines that were
        self.count = 0                          # of lines that were not
        self.is_over = False                    # the count is, or is about to be, reported

    @property
    def is_full(self) -> bool:
        """Whether no more lines are written, even with new texts."""
        return len(self.written) >= MOST_LINES or self.count >= MOST_LOOKS


class Report(NamedTuple):
    """number: of lines like text that were not written within the last seconds. fields: those that all have."""

    level: int
    number: int
    seconds: float
    text: str
    fields: Mapping[str, str]

    def line(self) -> str:
        """For the log."""
        period = "minute" if self.seconds >= EVERY_S else f"{max(1, round(self.seconds))} s"
        return f"{self.number:,} more like this in the last {period}: {self.text}"


class Repeats:
    """All kinds of the last minute. Not thread-safe."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Kind] = {}  # the oldest first

    def full(self, key: Hashable, fallback: Hashable = None) -> Kind | None:
        """The kind, if all its lines are counted; arguments as of admit()."""
        kind = self._kinds.get(key)
        if kind is None and len(self._kinds) >= MOST_KINDS:
            kind = self._kinds.get(fallback)
        return kind if kind is not None and kind.is_full else None

    def admit(self, key: Hashable, fallback: Hashable, level: int, text: str, fields: Mapping[str, str],
              now: float) -> bool:
        """Whether a line is to be written; else it is counted. fallback: its kind while there are too many.

        now: monotonic seconds.
        """
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                key = fallback
            kind = self._kinds.get(key) or self._kinds.setdefault(key, Kind(now, level))
        if kind.is_full or hash(text) in kind.written:
            kind.count += 1
            return False
        kind.written.add(hash(text))
        kind.example = text if len(text) <= EXAMPLE else f"{text[:EXAMPLE]}..."
        kind.fields = {name: value for name, value in fields.items() if name not in OF_ONE_LINE}
        return True

    def due(self) -> float | None:
        """The monotonic time at which the next reports are due; None: none will be."""
        return next((kind.began + EVERY_S for kind in self._kinds.values()), None)

    def reports(self, now: float, stopping: bool = False) -> Iterator[Report]:
        """The counts whose time is over, or all of them when stopping. They begin again."""
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))
            if not stopping and kind.began + EVERY_S > now:
                return
            del self._kinds[key]
            kind.is_over = True
            if kind.count:
                yield Report(kind.level, kind.count, now - kind.began, kind.example, kind.fields)


# ====================================================================== formats

AUTO = "auto"
MAX_LINE = 16 * 1024  # characters of one line; clients determine parts of some, and may send megabytes
PRIORITIES = {DEBUG: 7, INFO: 6, WARN: 4, ERROR: 3, FATAL: 2, AUDIT: 5}  # syslog's
NAMES = {level: name for name, level in LEVELS.items()} | {AUDIT: "audit"}
BARE = r'[^\s"=\\]+'  # a logfmt value that needs no quotes

Fields = Mapping[str, str | int]


class Form(Protocol):
    """Makes lines."""

    has_fields: bool  # it shows them

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """A line with its end. now_ns: since 1970."""


class Text:
    """nsqd's lines: `PREFIXdate time LEVEL: text`, in local time."""

    has_fields = False

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._stamp: tuple[int, str] = (-1, "")

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        seconds, micros = divmod(now_ns // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds)))
        return f"{self._prefix}{self._stamp[1]}.{micros:06d} {WORDS[level]}: {text}\n"


class Journal(Text):
    """nsqd's lines with the priority in front that journald takes off."""

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        return f"<{PRIORITIES[level]}>{super().line(now_ns, level, text, fields)}"


class _Records:
    """Lines of named values. Times are RFC 3339, in UTC."""

    has_fields = True

    def __init__(self, prefix: str):
        shown = one_line(prefix.strip())
        self._prefix = {"prefix": shown} if shown else {}
        self._stamp: tuple[int, str] = (-1, "")

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        seconds, micros = divmod(now_ns // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)))
        return self._written({"time": f"{self._stamp[1]}.{micros:06d}Z", "level": NAMES[level], **self._prefix,
                              "message": text, **fields})

    def _written(self, values: dict[str, str | int]) -> str:
        raise NotImplementedError


class Json(_Records):
    """A JSON object for each line."""

    def __init__(self, prefix: str):
        import msgspec  # here: other forms do without

        super().__init__(prefix)
        self._encode = msgspec.json.Encoder().encode

    def _written(self, values: dict[str, str | int]) -> str:
        return self._encode(values).decode() + "\n"


class Logfmt(_Records):
    """key=value pairs; values are quoted where they need it."""

    def _written(self, values: dict[str, str | int]) -> str:
        return " ".join([f"{key}={quoted(str(value))}" for key, value in values.items()]) + "\n"


FORMS: dict[str, Callable[[str], Form]] = {"text": Text, "json": Json, "journal": Journal, "logfmt": Logfmt}


def quoted(value: str) -> str:
    """In double quotes where it needs them, with backslashes before quotes and backslashes."""
    if re.fullmatch(BARE, value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def make(name: str, prefix: str, descriptor: int) -> Form:
    """The form of that name; AUTO: text, or journal if the descriptor is systemd's journal."""
    if name == AUTO:
        name = "journal" if is_journal(descriptor) else "text"
    return FORMS[name](prefix)


def is_journal(descriptor: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is the one that systemd has connected to the journal: a child may have inherited only the variable."""
    wanted = environ.get("JOURNAL_STREAM", "")
    if not wanted:
        return False
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return wanted == f"{status.st_dev}:{status.st_ino}"


def one_line(text: str) -> str:
    """Makes text fit for one line of the log: no line ends, no terminal controls, no megabytes."""
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}... ({len(text)} characters)"
    return visible(text)
