"""Nodes that have not answered. Nobody waits for them: a thread asks each again. Knows no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from nsqc.spark.log.errors import BadAnswer, Unreachable

REST_SECONDS = 5.0      # before it is asked again


@dataclass
class _Rest:
    until: float            # monotonic
    why: str                # the error of the last question
    asked: bool = False     # a thread waits for an answer
    answers: bool = False   # it has one


class Resting:
    """By node: why it did not answer. A node that hangs costs its first asker a time-out, and nobody after that."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def failed(self, node: str, error: Exception) -> None:
        """The node did not answer."""
        self._rests[node] = _Rest(time.monotonic() + REST_SECONDS, str(error))

    def why(self, node: str, ask: Callable[[], object]) -> str | None:
        """Why the node is not to be asked now; None: it may be. ask() runs on a thread, and raises Unreachable or
        BadAnswer; meanwhile nobody else asks the node."""
        rest = self._rests.get(node)
        if rest is None:
            return None
        if rest.answers:
            del self._rests[node]
            return None
        if not rest.asked and time.monotonic() >= rest.until:
            rest.asked = True
            # A daemon thread: the end of the process does not wait for its time-out.
            threading.Thread(target=_ask, args=(rest, ask), name=f"nsqc-{node}", daemon=True).start()
        return rest.why

    def forget(self) -> None:
        """Every node may be asked, but for those that a thread is asking."""
        self._rests = {node: rest for node, rest in self._rests.items() if rest.asked}


def _ask(rest: _Rest, ask: Callable[[], object]) -> None:
    try:
        ask()
    except (Unreachable, BadAnswer) as error:
        rest.why = str(error)
        rest.until = time.monotonic() + REST_SECONDS
        rest.asked = False
    except Exception:       # whoever asks next gets it
        rest.answers = True
    else:
        rest.answers = True
