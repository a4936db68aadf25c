"""Searches the states of a model: breadth first, so a counterexample is a shortest one."""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol


class Model(Protocol):
    def start(self) -> Hashable: ...
    def steps(self, state: Hashable) -> Iterator[tuple[str, Hashable]]: ...
    def fault(self, state: Hashable) -> str: ...


class Result(NamedTuple):
    states: int
    fault: str                  # empty: none was found
    trace: list[str]            # the steps that lead to it
    complete: bool              # all states within the model's bounds were seen


def search(model: Model, prefix: list[str] = [], limit: int = 10**9) -> Result:  # noqa: B006
    """All states from the end of `prefix` on: beginnings of the names of steps. A fault on the way ends it, too."""
    state, trace = model.start(), []
    for wanted in prefix:
        found = [(name, after) for name, after in model.steps(state) if name.startswith(wanted)]
        if not found:
            raise ValueError(f"{wanted!r} cannot happen after {trace}; possible: {[n for n, _ in model.steps(state)]}")
        name, state = found[0]
        trace.append(name)
        if fault := model.fault(state):
            return Result(len(trace), fault, trace, False)
    before: dict[Hashable, tuple[Hashable, str] | None] = {state: None}
    queue = deque([state])
    while queue and len(before) < limit:
        state = queue.popleft()
        for name, after in model.steps(state):
            if after in before:
                continue
            before[after] = (state, name)
            if fault := model.fault(after):
                return Result(len(before), fault, trace + path(before, after), False)
            queue.append(after)
    return Result(len(before), "", [], not queue)


def path(before: dict[Hashable, tuple[Hashable, str] | None], state: Hashable) -> list[str]:
    names: list[str] = []
    while (step := before[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]
