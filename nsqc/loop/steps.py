"""A coroutine whose steps have a name, for reports of slow iterations."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import FrameType
from typing import Any

from nsqc.loop.watch import span_began, span_ended


class Steps(Coroutine[Any, Any, object]):  # Any: values exchanged with the loop
    """Runs another coroutine; kind and str(what) name it."""

    __slots__ = ("_kind", "_what", "_work")

    # Any: as above
    def __init__(self, work: Coroutine[Any, Any, object], kind: str, what: object) -> None:
        self._work = work
        self._kind = kind
        self._what = what

    @property
    def cr_frame(self) -> FrameType | None:
        """The innermost awaited coroutine, for code that prints the stacks of tasks."""
        frame: FrameType | None = getattr(self._work, "cr_frame", None)
        inner = getattr(self._work, "cr_await", None)
        while (deeper := getattr(inner, "cr_frame", None)) is not None:
            frame, inner = deeper, getattr(inner, "cr_await", None)
        return frame

    def __await__(self) -> Generator[Any, Any, object]:  # Any: as above
        return self._work.__await__()

    def send(self, value: object) -> object:
        """One step."""
        began = span_began()
        try:
            return self._work.send(value)
        finally:
            span_ended(began, self._kind, self._what)

    # Any: typeshed's signature
    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> object:
        """A step that starts with an exception."""
        return self._work.throw(kind) if value is None else self._work.throw(kind, value, trace)

    def close(self) -> None:
        """Closes the coroutine."""
        self._work.close()
