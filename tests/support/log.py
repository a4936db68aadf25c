"""A log for tests of modules that are given one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nsqc.log import Log


class RecordingLog(Log):
    """Keeps the text of each line, of every level, and writes none."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def error(self, text: str, *arguments: Any, kind: Hashable = None, each: bool = False) -> None:
        """Keeps the line."""
        self.lines.append(text % arguments if arguments else text)

    debug = info = warn = fatal = error
