"""Nodes that have not answered. No caller waits for them: a thread retries each. Knows no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from nsqc.spark.log.errors import BadAnswer, Unreachable

REST_SECONDS = 5.0      # between retries


@dataclass
class _Rest:
    until: float            # monotonic
    why: str                # the last error
    asked: bool = False     # a thread waits for an answer
    answers: bool = False   # it has answered


class Resting:
    """Errors by node. A hanging node costs its first caller a timeout, and later ones nothing."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def failed(self, node: str, error: Exception) -> None:
        """The node did not answer."""
        self._rests[node] = _Rest(time.monotonic() + REST_SECONDS, str(error))

    def why(self, node: str, ask: Callable[[], object]) -> str | None:
        """Why not to query the node now; None: it may be queried. ask() runs on a thread, and raises Unreachable or
        BadAnswer; meanwhile no other caller queries the node."""
        rest = self._rests.get(node)
        if rest is None:
            return None
        if rest.answers:
            del self._rests[node]
            return None
        if not rest.asked and time.monotonic() >= rest.until:
            rest.asked = True
            # A daemon thread: the process does not wait for its timeout at exit.
            threading.Thread(target=_ask, args=(rest, ask), name=f"nsqc-{node}", daemon=True).start()
        return rest.why

    def forget(self) -> None:
        """Allows all nodes to be queried, except those that a thread is querying."""
        self._rests = {node: rest for node, rest in self._rests.items() if rest.asked}


def _ask(rest: _Rest, ask: Callable[[], object]) -> None:
    try:
        ask()
    except (Unreachable, BadAnswer) as error:
        rest.why = str(error)
        rest.until = time.monotonic() + REST_SECONDS
        rest.asked = False
    except Exception:       # the next caller gets it
        rest.answers = True
    else:
        rest.answers = True
