"""One scenario played, its outcome, and how it is shown."""

from __future__ import annotations

import copy
import difflib
import threading
import time
from dataclasses import dataclass
from typing import Any

from kit.base import GIVE_UP_AFTER, BadScenario, Failure, NotReady, Options, Skip
from kit.player import Player
from kit.scenarios import ScenarioFile, layout


@dataclass
class Outcome:
    label: str
    ok: bool
    seconds: float
    why: str = ""
    detail: str = ""
    skipped: bool = False
    not_ready: bool = False


class Breaker:
    """Stops starting servers once several in a row never got ready."""

    def __init__(self) -> None:
        self.lock, self.misses, self.any_ready = threading.Lock(), 0, False

    def open(self) -> bool:
        return not self.any_ready and self.misses >= GIVE_UP_AFTER

    def note(self, not_ready: bool) -> None:
        with self.lock:
            self.misses = self.misses + 1 if not_ready else 0
            self.any_ready = self.any_ready or not not_ready


def difference(want: Any, got: Any) -> str:
    def rows(value: Any) -> list[str]:
        return layout(value, spread=1).splitlines()

    if want is None:
        return "got: " + layout(got)
    return "\n".join(difflib.unified_diff(rows(want), rows(got), "recorded", "got", lineterm=""))


def play_one(file: ScenarioFile, scenario: dict[str, Any], options: Options,
             breaker: Breaker, kind: type[Player] = Player) -> Outcome:
    label = f"{file.area}/{scenario['name']}"
    if breaker.open():
        return Outcome(label, False, 0, "not played: no server gets ready")
    began = time.monotonic()
    played = copy.deepcopy(scenario)
    player = kind(played, options)

    def outcome(ok: bool, why: str = "", detail: str = "", **more: bool) -> Outcome:
        if not ok and player.log_tail:
            detail += "\nserver log:\n" + player.log_tail
        return Outcome(label, ok, time.monotonic() - began, why, detail.strip(), **more)

    try:
        player.play()
    except Skip as skip:
        return outcome(True, str(skip), skipped=True)
    except Failure as failure:
        not_ready = isinstance(failure, NotReady)
        breaker.note(not_ready)
        detail = "" if failure.got is None else difference(failure.want, failure.got)
        return outcome(False, str(failure), detail, not_ready=not_ready)
    except BadScenario as bad:
        return outcome(False, f"bad scenario: {bad}")
    except Exception as broken:  # replies may be odd in unforeseen ways
        return outcome(False, f"broke off: {broken!r}")
    breaker.note(False)
    if options.record:
        scenario["steps"], file.dirty = played["steps"], True
    return outcome(True)


def report(outcome: Outcome, verbose: bool) -> None:
    word = "skip" if outcome.skipped else "ok" if outcome.ok else "FAIL"
    line = f"{word:4} {outcome.label}  ({outcome.seconds:.1f} s)"
    if outcome.why:
        short = outcome.why if verbose or len(outcome.why) < 300 else outcome.why[:300] + " ..."
        line += f"  {short}"
    print(line, flush=True)
    if verbose and outcome.detail:
        print("     " + outcome.detail.replace("\n", "\n     "), flush=True)
