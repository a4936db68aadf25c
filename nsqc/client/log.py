"""Loggers of nsqc.client."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger that raises nothing: a handler or filter of the application that fails must not end a connection or a
    worker, nor leave a message unanswered. Its exception goes to stderr."""

    def __init__(self, name: str):
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:       # Any: as of Logger.log()
        """See Logger."""
        try:
            # stacklevel: this frame is not the caller.
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except Exception:
            if sys.stderr is not None:
                with suppress(Exception):       # stderr may be closed
                    traceback.print_exc()

    # Any: as of LoggerAdapter
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leaves the caller's extra fields unchanged."""
        return msg, kwargs
