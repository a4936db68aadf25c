"""Repeated warnings and errors: the first are written, the others are counted, and the count is written each minute.

Lines of one kind have the same format and concern the same topic, channel or peer; see kind_of() in fields.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

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
