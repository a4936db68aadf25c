"""A progress line on the terminal."""

from __future__ import annotations

import os
import shutil
import time

from nsqc.tools.output import STDERR

EVERY_SECONDS = 0.2
WIDTH = 30


class Progress:
    """total: bytes of the input, 0 if unknown. Shows nothing unless is_shown."""

    def __init__(self, place: str, total: int, is_shown: bool):
        self._place, self._total, self._is_shown = place, total, is_shown
        self._began = self._then = time.monotonic()
        self._visible = False

    def show(self, messages: int, done: int) -> None:
        """Updates messages and input bytes so far."""
        now = time.monotonic()
        if not self._is_shown or now - self._then < EVERY_SECONDS:
            return
        self._then = now
        rate = messages / max(now - self._began, 1e-9)
        text = f"{self._place}: {messages:,} messages, {rate:,.0f}/s"
        if self._total:
            share = min(done / self._total, 1.0)
            filled = round(share * WIDTH)
            bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}"
            text = f"{self._place}: {bar}  {messages:,} messages, {rate:,.0f}/s"
        columns = shutil.get_terminal_size().columns
        os.write(STDERR, f"\r\x1b[K{text[:columns - 1]}".encode())
        self._visible = True

    def clear(self) -> None:
        """Removes it."""
        if self._visible:
            os.write(STDERR, b"\r\x1b[K")
            self._visible = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
