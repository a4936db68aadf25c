"""The contents of the screen, and the effect of keys. Knows no terminal: lines come out, keys go in."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
import unicodedata
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from nsqc import __version__
from nsqc.log.formats import visible
from nsqc.tools.acting import count
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import NoNode, ToolError, Values
from nsqc.tools.running import STDOUT
from nsqc.tools.top.model import COLUMNS, HISTORY, Model, Row, Sample, Sampler

if TYPE_CHECKING:
    from nsqc.tools.cluster import NodeHttp


# ====================================================================== drawing
# Formats rows as lines of text that fit the screen.

BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
INVERSE, BOLD, DIM, RED, YELLOW = "\x1b[7m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m"
NARROWEST_NAME, COMFORTABLE_NAME = 10, 15
PAUSED = " (paused)"


class Column(NamedTuple):
    """name: of the value; kind: name, rate, count, age or spark; drop: the higher, the earlier it is omitted."""

    title: str
    name: str
    kind: str = "count"
    drop: int = 0


WIDTHS = {"rate": 9, "count": 9, "age": 8, "spark": HISTORY // 2}
VIEWS: dict[str, tuple[Column, ...]] = {
    "topics": (Column("TOPIC", "topic", "name"), Column("IN/S", "in", "rate"), Column("DEPTH", "depth"),
               Column("IN CHANS", "held", drop=1), Column("CHANNELS", "channels", drop=3),
               Column("OLDEST", "oldest", "age", 2), Column("MESSAGES", "messages", drop=4),
               Column("IDS", "ids", drop=6), Column("REPEATS", "repeats", drop=7),
               Column("FORGOTTEN", "forgotten", drop=8), Column("RATE", "in", "spark", 5)),
    "channels": (Column("TOPIC", "topic", "name"), Column("CHANNEL", "channel", "name"),
                 Column("IN/S", "in", "rate", 2), Column("OUT/S", "out", "rate"), Column("DEPTH", "depth"),
                 Column("IN FLIGHT", "in flight", drop=1),
                 Column("DEFERRED", "deferred", drop=4), Column("REQ/S", "requeued", "rate", 6),
                 Column("TMO/S", "timed out", "rate", 5),
                 *(Column(title, field, drop=8 + at) for at, (field, title) in enumerate(COLUMNS.items())),
                 Column("CLIENTS", "clients", drop=3),
                 Column("OLDEST", "oldest", "age", 2), Column("RATE", "in", "spark", 7),
                 Column("RULES", "rules", "name", 8 + len(COLUMNS))),
    "clients": (Column("CLIENT", "client", "name"), Column("ADDRESS", "address", "name"),
                Column("TOPIC", "topic", "name", 4), Column("CHANNEL", "channel", "name", 3),
                Column("MSGS/S", "in", "rate"), Column("FIN/S", "out", "rate", 1), Column("RDY", "ready", drop=2),
                Column("IN FLIGHT", "in flight"), Column("REQ/S", "requeued", "rate", 5),
                Column("AGENT", "agent", "name", 6)),
    "nodes": (Column("NODE", "node", "name"), Column("VERSION", "version", "name", 4),
              Column("HEALTH", "health", "name"),
              Column("TOPICS", "topics", drop=2), Column("CHANNELS", "channels", drop=3),
              Column("CLIENTS", "clients", drop=1), Column("IN/S", "in", "rate"), Column("OUT/S", "out", "rate"),
              Column("DEPTH", "depth"), Column("UP", "up", "age", 5)),
}


def fitting(columns: tuple[Column, ...], width: int) -> list[tuple[Column, int]]:
    """The columns that fit, with their widths: names share the width not used by numbers."""
    left = list(columns)
    while True:
        names = sum(column.kind == "name" for column in left)
        room = width - sum(WIDTHS.get(column.kind, 0) for column in left) - 2 * (len(left) - 1)
        droppable = [column for column in left if column.drop]
        if room >= names * COMFORTABLE_NAME or not droppable:
            break
        left.remove(max(droppable, key=lambda column: column.drop))
    each = max(room // max(names, 1), NARROWEST_NAME)
    return [(column, WIDTHS.get(column.kind, each)) for column in left]


def titles(fitted: list[tuple[Column, int]], sort: str, backward: bool, unicode: bool) -> str:
    """The header line."""
    mark = ("▼" if unicode else "v") if backward else ("▲" if unicode else "^")
    cells = []
    for column, width in fitted:
        title = column.title + (mark if column.name == sort and column.kind != "spark" else "")
        cells.append(title[:width].ljust(width) if column.kind in ("name", "spark") else title[:width].rjust(width))
    return "  ".join(cells)


def line(row: Row, fitted: list[tuple[Column, int]], unicode: bool) -> str:
    """A row. One with an error shows only that."""
    if "error" in row.values:
        return f"{visible(row.key[-1])}  {visible(str(row.values['error']))}"
    cells = []
    for column, width in fitted:
        if column.kind == "spark":
            cells.append(spark(row.history, width, unicode))
            continue
        value = row.values.get(column.name, "")
        if isinstance(value, str):
            mark = PAUSED if row.paused and value == row.key[-1] else ""
            text = cell(cell(visible(value), width - len(mark)).rstrip() + mark, width)
            cells.append(text if column.kind == "name" else " " * width)
        elif column.kind == "age":
            cells.append(age(value).rjust(width))
        else:
            cells.append(number(value, column.kind == "rate").rjust(width))
    return "  ".join(cells)


def cell(text: str, width: int) -> str:
    """Pads or cuts a text to this width."""
    if text.isascii():
        return text[:width - 1] + "~" if len(text) > width else text.ljust(width)
    taken, used = [], 0
    for char in text:
        wide = 2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1
        if used + wide > width:
            break
        taken.append(char)
        used += wide
    return "".join(taken) + " " * (width - used)


def number(value: float, is_rate: bool = False) -> str:
    """Formats a number in at most nine characters."""
    if is_rate and 0 < value < 10:
        return f"{value:.1f}"
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if value >= size:
            return f"{value / size:.2f}{unit}"
    return f"{value:,.0f}" if value < 1e7 else f"{value / 1e6:,.1f}M"


def age(seconds: float) -> str:
    """Formats a time in two units; empty below 0."""
    if seconds < 0:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02}{small}"
    return f"{whole}s"


def spark(history: tuple[float, ...], width: int, unicode: bool) -> str:
    """The latest rates as bars, the newest at the right."""
    bars = BARS if unicode else PLAIN_BARS
    shown = history[-width:]
    highest = max(shown, default=0.0)
    if highest <= 0:
        return " " * width
    steps = len(bars) - 1
    return "".join(bars[max(1, round(value / highest * steps)) if value else 0] for value in shown).rjust(width)


# ====================================================================== terminal
# The terminal: keys in, lines out. Only changed lines are written.

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"      # alternate screen, no cursor, no wrapping
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
# Terminals' sequences for keys, and their names.
SEQUENCES = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[C": "right", "OC": "right", "[D": "left", "OD": "left",
    "[5~": "pgup", "[6~": "pgdn", "[H": "home", "OH": "home", "[1~": "home", "[7~": "home", "[F": "end", "OF": "end",
    "[4~": "end", "[8~": "end", "[Z": "backtab", "[3~": "delete",
}
NAMES = {"\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1b": "esc",
         "\x0c": "redraw", "\x04": "q"}
ESCAPE_S = 0.05     # timeout for the rest of a sequence


class Terminal:
    """Use in a with block. Raises ToolError if stdin or stdout is not a terminal."""

    def __init__(self) -> None:
        if not os.isatty(0) or not os.isatty(STDOUT):
            raise ToolError("needs a terminal; `nsqc topic list --json` and `nsqc stat --json` are for scripts")
        self.resized = self.suspended = False
        self._lines: list[str] = []
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)
        self._rest = b""
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self.unicode = encoding == "utf8"

    def __enter__(self) -> Terminal:
        # Any: termios' form
        self._before: list[Any] = termios.tcgetattr(0)
        self._handlers = {number: signal.signal(number, handler) for number, handler in (
            (signal.SIGWINCH, self._changed), (signal.SIGTSTP, self._stopped))}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _enter(self) -> None:
        # ^C stays a signal.
        tty.setcbreak(0, termios.TCSANOW)
        self._put(ENTER)
        self._lines = []

    def _leave(self) -> None:
        self._put(LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _changed(self, number: int, frame: FrameType | None) -> None:
        self.resized = True

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self.suspended = True

    def suspend(self) -> None:
        """^Z: stops the process with the terminal restored; returns when it resumes."""
        self.suspended = False
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            return tuple(os.get_terminal_size(STDOUT))      # type: ignore[return-value]
        except OSError:
            return tuple(shutil.get_terminal_size())        # type: ignore[return-value]

    # ------------------------------------------------------------------ keys

    def wait(self, seconds: float, other: int) -> list[str]:
        """Keys pressed within this many seconds; none if another descriptor is readable first, or a signal has arrived.
        `closed`: the terminal is gone."""
        poll = select.poll()
        for descriptor in (0, self._read, other):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._read in ready:
            os.read(self._read, 4096)
        return self._keys() if 0 in ready else []

    def _keys(self) -> list[str]:
        data = os.read(0, 1024)
        if not data:
            return ["closed"]
        data = self._rest + data
        if data.endswith(b"\x1b") and select.select([0], [], [], ESCAPE_S)[0]:
            data += os.read(0, 64)
        text = data.decode(errors="ignore")
        self._rest = b"" if text else data[-3:]
        return keys_of(text)

    # ------------------------------------------------------------------ lines

    def show(self, lines: list[str]) -> None:
        """Displays these lines."""
        if self.resized:
            self.resized = False
            self._lines = []
        parts = ["\x1b[2J"] if not self._lines else []
        for at, line in enumerate(lines):
            if at >= len(self._lines) or self._lines[at] != line:
                parts.append(f"\x1b[{at + 1};1H{line}\x1b[0m\x1b[K")
        if len(self._lines) > len(lines):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._lines = lines
        if parts:
            self._put("".join(parts))

    def redraw(self) -> None:
        """Redraws everything the next time."""
        self._lines = []

    def _put(self, text: str) -> None:
        rest = text.encode(errors="replace")
        while rest:
            rest = rest[os.write(STDOUT, rest):]


def keys_of(text: str) -> list[str]:
    """Keys by name, or the characters themselves."""
    keys = []
    while text:
        if text[0] == "\x1b" and len(text) > 1:
            for sequence, name in SEQUENCES.items():
                if text.startswith(sequence, 1):
                    keys.append(name)
                    text = text[1 + len(sequence):]
                    break
            else:
                if text[1] not in "[O":
                    keys.append("esc")
                    text = text[1:]
                    continue
                # An unknown sequence ends with a letter or a tilde.
                end = next((at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"), len(text) - 1)
                text = text[end + 1:]
            continue
        keys.append(NAMES.get(text[0], text[0]))
        text = text[1:]
    return keys


# ====================================================================== screen

NARROWEST, LOWEST = 40, 8
INTERVALS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
HINTS = "1-4 view  arrows move  Enter into  s sort  r reverse  / filter  p pause  e empty  space stop  ? help  q quit"
HELP = (
    "1 2 3 4, Tab   topics, channels, clients, nodes",
    "arrows, j k, PgUp PgDn, Home End   move",
    "Enter          channels of the topic, clients of the channel",
    "Esc            back; ends a filter",
    "s S            sort by the next column, the one before",
    "r              reverse the order",
    "/              show only names containing a text",
    "p              pause or unpause the selected topic or channel",
    "e              empty the selected topic or channel, after a confirmation",
    "space          freeze or resume the screen",
    "+ -            longer or shorter interval",
    "?              this page",
    "q              end",
)


class Screen:
    """view: the initial one; filter_: a part of names."""

    def __init__(self, model: Model, sampler: Sampler, view: str, filter_: str, unicode: bool):
        self.ended = False
        self._model, self._sampler, self._unicode = model, sampler, unicode
        self._view, self._filter = view, filter_
        self._sort = dict.fromkeys(VIEWS, "")       # by view: name of the column; empty: by name
        self._backward = dict.fromkeys(VIEWS, False)
        self._path: list[tuple[str, tuple[str, ...]]] = []      # views that Enter has left, with their row
        self._inside: tuple[str, ...] = ()      # the row that the view is restricted to
        self._selected: tuple[str, ...] | None = None
        self._at = self._top = 0
        self._height = 1
        self._typing: str | None = None         # a filter being typed
        self._question: tuple[str, Callable[[], None]] | None = None
        self._status = ""
        self._helping = False
        self._frozen = False
        self._rows: list[Row] = []
        self._totals = model.totals()

    # ------------------------------------------------------------------ rows

    def refresh(self) -> None:
        """Takes new numbers, unless the screen is frozen."""
        while self._sampler.reports:
            self._status = self._sampler.reports.popleft()
        if not self._frozen:
            self._totals = self._model.totals()
            self._build()

    def _build(self) -> None:
        self._sampler.with_clients = self._view == "clients"
        if self._view == "topics":
            rows = self._model.topics()
        elif self._view == "channels":
            rows = self._model.channels(*self._inside[:1])
        elif self._view == "clients":
            rows = self._model.clients(*self._inside[:2])
        else:
            rows = self._model.nodes()
        if self._filter:
            wanted = self._filter.lower()
            rows = [row for row in rows if any(wanted in value.lower() for value in row.values.values()
                                               if isinstance(value, str))]
        backward = self._backward[self._view]
        if sort := self._sort[self._view]:
            # Equal values are sorted by name, in either order.
            rows.sort(key=lambda row: row.key)
            rows.sort(key=lambda row: sortable(row.values.get(sort, 0.0)), reverse=backward)
        else:
            rows.sort(key=lambda row: row.key, reverse=backward)
        self._rows = rows
        self._find()

    def _find(self) -> None:
        """Keeps the selected row selected wherever it moves."""
        if self._selected is not None:
            for at, row in enumerate(self._rows):
                if row.key == self._selected:
                    self._at = at
                    break
        self._move_to(self._at)

    def _move_to(self, at: int) -> None:
        self._at = max(0, min(at, len(self._rows) - 1))
        self._selected = self._rows[self._at].key if self._rows else None
        self._top = max(min(self._top, self._at), self._at - self._height + 1, 0)

    # ------------------------------------------------------------------ lines

    def lines(self, columns: int, height: int) -> list[str]:
        """Exactly as many lines as the terminal has."""
        if columns < NARROWEST or height < LOWEST:
            text = f"{columns}x{height} is too small: {NARROWEST}x{LOWEST} at least"
            return ([text[:columns]] + [""] * height)[:max(height, 1)]
        self._height = height - 4
        self._move_to(self._at)
        body = [f"  {text}"[:columns] for text in HELP] if self._helping else self._table(columns)
        body = (body + [""] * height)[:height - 3]
        self._sampler.wanted = [row.key for row in self._rows[self._top:self._top + self._height]
                                if self._view in ("topics", "channels")]
        return [self._head(columns), self._second(columns), *body, DIM + HINTS[:columns].ljust(columns)]

    def _head(self, columns: int) -> str:
        totals = self._totals
        silent = f", {totals.silent} silent" if totals.silent else ""
        text = (f"nsqc top {__version__}  {count(totals.nodes, 'node')}{silent}  {count(totals.topics, 'topic')}  "
                f"{count(totals.channels, 'channel')}  in {number(totals.coming)}/s  out {number(totals.going)}/s  "
                f"depth {number(totals.depth)}")
        # The clock is always shown: it tells a live screen from a frozen one.
        clock = ("stopped " if self._frozen else "") + time.strftime("%H:%M:%S")
        return (RED if totals.silent else BOLD) + cell(text, columns - len(clock) - 1) + " " + clock

    def _second(self, columns: int) -> str:
        """A question, a filter being typed, the result of an action, or the current view."""
        if self._question is not None:
            return YELLOW + cell(visible(f"{self._question[0]} [y/N]"), columns)
        if self._typing is not None:
            return cell(visible(f"filter: {self._typing}_"), columns)
        place = "  ".join(filter(None, (
            self._view, f"of {' / '.join(self._inside)}" if self._inside else "",
            f"with {self._filter!r}" if self._filter else "", f"{len(self._rows):,} shown",
            f"every {self._sampler.interval:g} s")))
        if self._status:
            return YELLOW + cell(visible(self._status), columns)
        return DIM + cell(visible(place), columns)

    def _table(self, columns: int) -> list[str]:
        fitted = fitting(VIEWS[self._view], columns)
        shown = [INVERSE + cell(titles(fitted, self._sort[self._view] or VIEWS[self._view][0].name,
                                       self._backward[self._view], self._unicode), columns)]
        for at, row in enumerate(self._rows[self._top:self._top + self._height], self._top):
            text = cell(line(row, fitted, self._unicode), columns)
            style = YELLOW if row.paused else ""
            shown.append(style + (INVERSE if at == self._at else "") + text)
        if not self._rows:
            shown.append("  nothing" + (f" with {self._filter!r}" if self._filter else ""))
        return shown

    # ------------------------------------------------------------------ keys

    def press(self, key: str) -> None:
        """One key."""
        if key == "closed":
            self.ended = True
        elif self._question is not None:
            question, self._question = self._question, None
            if key in ("y", "Y"):
                question[1]()
        elif self._typing is not None:
            self._type(key)
        else:
            self._status = ""
            helped, self._helping = self._helping, False
            action = KEYS.get(key)
            if action is not None and not (helped and key in ("esc", "?", "h", "q")):
                action(self)
        if not self._frozen or self._typing is not None:
            self._build()

    def _type(self, key: str) -> None:
        typed = self._typing or ""
        if key == "enter":
            self._typing = None
        elif key == "esc":
            self._typing, self._filter = None, ""
        else:
            typed = typed[:-1] if key in ("backspace", "delete") else typed + key if len(key) == 1 else typed
            self._typing = self._filter = typed

    def choose(self, view: str) -> None:
        """Another view, of everything."""
        self._show(view, ())
        self._path = []

    def _show(self, view: str, inside: tuple[str, ...]) -> None:
        self._view, self._inside = view, inside
        self._selected, self._at, self._top = None, 0, 0
        if view == "clients":
            self._sampler.with_clients = True
            self._sampler.hurry()

    def next_view(self, step: int = 1) -> None:
        """Cycles through the views."""
        names = list(VIEWS)
        self.choose(names[(names.index(self._view) + step) % len(names)])

    def enter(self) -> None:
        """Enters the selected row."""
        if self._selected is not None and self._view in ("topics", "channels"):
            inside = self._selected
            self._path.append((self._view, self._selected))
            self._show("channels" if self._view == "topics" else "clients", inside)
            self._filter = ""

    def back(self) -> None:
        """Leaves it, or a filter."""
        if self._filter:
            self._filter = ""
        elif self._path:
            view, selected = self._path.pop()
            self._show(view, self._path[-1][1] if self._path else ())
            self._selected = selected

    def sort(self, step: int) -> None:
        """Sorts by another column."""
        names = list(dict.fromkeys(column.name for column in VIEWS[self._view]))
        current = self._sort[self._view] or names[0]
        chosen = names[(names.index(current) + step) % len(names)]
        self._sort[self._view] = chosen
        # Largest values first.
        kind = next(column.kind for column in VIEWS[self._view] if column.name == chosen)
        self._backward[self._view] = kind != "name"

    def reverse(self) -> None:
        """Reverses the order."""
        self._backward[self._view] = not self._backward[self._view]

    def move(self, by: int) -> None:
        """Moves up or down."""
        self._move_to(self._at + by)

    def page(self, by: int) -> None:
        """The same, by pages."""
        self._move_to(self._at + by * max(self._height - 1, 1))

    def start_filter(self) -> None:
        """Starts typing a filter."""
        self._typing = self._filter

    def help(self) -> None:
        """Shows the keys."""
        self._helping = True

    def freeze(self) -> None:
        """Freezes or resumes the screen."""
        self._frozen = not self._frozen

    def pace(self, step: int) -> None:
        """Changes the interval."""
        slower = [value for value in INTERVALS if value > self._sampler.interval + 1e-9]
        faster = [value for value in INTERVALS if value < self._sampler.interval - 1e-9]
        if step > 0 and slower:
            self._sampler.interval = slower[0]
        elif step < 0 and faster:
            self._sampler.interval = faster[-1]

    def end(self) -> None:
        """Quits."""
        self.ended = True

    # ------------------------------------------------------------------ actions

    def _target(self) -> tuple[str, str, dict[str, str]] | None:
        """(kind, name for people, arguments) of the selected topic or channel."""
        if self._selected is None or self._view not in ("topics", "channels"):
            self._status = "choose a topic or a channel first"
            return None
        if self._view == "topics":
            return "topic", f"topic {self._selected[0]}", {"topic": self._selected[0]}
        topic, channel = self._selected[:2]
        return "channel", f"channel {channel} of topic {topic}", {"topic": topic, "channel": channel}

    def pause(self) -> None:
        """Pauses the selected topic or channel, or resumes it."""
        target = self._target()
        if target is not None:
            kind, name, arguments = target
            action = "unpause" if self._rows[self._at].paused else "pause"
            self._act(f"/{kind}/{action}", arguments, f"{name} {'unpaused' if action == 'unpause' else 'paused'}")

    def empty(self) -> None:
        """Empties the selected topic or channel, after a confirmation."""
        target = self._target()
        if target is not None:
            kind, name, arguments = target
            values = self._rows[self._at].values
            held = sum(float(values.get(key) or 0) for key in ("depth", "in flight", "deferred"))
            self._question = (f"Drop {held:,.0f} messages of {name}?",
                              lambda: self._act(f"/{kind}/empty", arguments, f"{name} emptied"))

    def _act(self, path: str, arguments: dict[str, str], done: str) -> None:
        def call(api: NodeHttp) -> object:
            return api.post(path, arguments)

        self._sampler.act(done, call)


KEYS: dict[str, Callable[[Screen], None]] = {
    "1": lambda screen: screen.choose("topics"), "2": lambda screen: screen.choose("channels"),
    "3": lambda screen: screen.choose("clients"), "4": lambda screen: screen.choose("nodes"),
    "tab": Screen.next_view, "backtab": lambda screen: screen.next_view(-1), "enter": Screen.enter,
    "right": Screen.enter, "esc": Screen.back, "left": Screen.back, "backspace": Screen.back,
    "s": lambda screen: screen.sort(1), "S": lambda screen: screen.sort(-1), "r": Screen.reverse,
    "up": lambda screen: screen.move(-1), "k": lambda screen: screen.move(-1), "down": lambda screen: screen.move(1),
    "j": lambda screen: screen.move(1), "pgup": lambda screen: screen.page(-1), "pgdn": lambda screen: screen.page(1),
    "home": lambda screen: screen.move(-10**9), "end": lambda screen: screen.move(10**9),
    "/": Screen.start_filter, "p": Screen.pause, "e": Screen.empty, " ": Screen.freeze,
    "+": lambda screen: screen.pace(1), "-": lambda screen: screen.pace(-1), "?": Screen.help, "h": Screen.help,
    "q": Screen.end,
}


def sortable(value: float | str) -> tuple[int, float, str]:
    """Numbers sort before texts."""
    return (1, 0.0, value) if isinstance(value, str) else (0, value, "")


# ====================================================================== running
# The loop of `nsqc top`: nodes' answers and keys in, lines out.

WORDS = "nsqc top"


def top(values: Values) -> int:
    """Runs until q. Raises ToolError."""
    terminal = Terminal()
    cluster = Cluster(values, WORDS)
    nodes = cluster.nodes()
    if not nodes:
        raise NoNode("no nsqd is registered")
    sampler = Sampler(cluster, values.seconds("interval"))
    sampler.with_clients = values.text("view") == "clients"
    # Before the screen is taken over: if no node answers, that is a line on stderr.
    cluster.each(nodes, lambda api, node: sampler.arrived.append(Sample(node.http, api.stats(), None)), lambda _: None)
    model = Model(sampler)
    sampler.start(nodes)
    model.take()
    with terminal:
        screen = Screen(model, sampler, values.text("view"), values.text("filter"), terminal.unicode)
        screen.refresh()
        try:
            while not screen.ended:
                columns, height = terminal.size
                terminal.show(screen.lines(columns, height))
                keys = terminal.wait(1.0 - time.time() % 1.0, sampler.fileno())    # until the clock changes
                sampler.calm()
                if terminal.suspended:
                    terminal.suspend()
                for key in keys:
                    if key == "redraw":
                        terminal.redraw()
                    screen.press(key)
                if model.take() or sampler.reports:
                    screen.refresh()
        finally:
            sampler.close()
    return 0
