"""The contents of the screen, and the effect of keys. Knows no terminal: lines come out, keys go in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqc import __version__
from nsqc.log.visible import visible
from nsqc.tools.top.drawing import BOLD, DIM, INVERSE, RED, VIEWS, YELLOW, cell, fitting, line, number, titles
from nsqc.tools.top.model import Model, Row

if TYPE_CHECKING:
    from nsqc.tools.nodehttp import NodeHttp
    from nsqc.tools.top.sampling import Sampler

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
        nodes = f"{totals.nodes} node{'' if totals.nodes == 1 else 's'}"
        silent = f", {totals.silent} silent" if totals.silent else ""
        text = (f"nsqc top {__version__}  {nodes}{silent}  {totals.topics:,} topics  {totals.channels:,} channels  "
                f"in {number(totals.coming)}/s  out {number(totals.going)}/s  depth {number(totals.depth)}")
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
