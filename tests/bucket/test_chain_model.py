"""The rules of the chain of commits: together they suffice, and each is needed."""

import pytest

from tests.bucket.chain_model import RULES, Chain
from tests.bucket.search import search


def active(run: int, read: tuple[int, ...] = ()) -> list[str]:
    return [f"run {run} starts", *(f"run {run} reads {number}" for number in read), f"run {run} sends its claim",
            f"the claim of run {run}", f"run {run} knows that its claim", f"run {run} is active"]


def sent(run: int, message: int) -> list[str]:
    return [f"run {run} sends message {message}", f"the message {message} of run {run}"]


def published(run: int, message: int) -> list[str]:
    return [*sent(run, message), f"run {run} acknowledges message {message}"]


def checkpoint(run: int, number: int) -> list[str]:
    return [f"run {run} sends checkpoint {number}", f"checkpoint {number} lands",
            f"run {run} knows that checkpoint {number}"]


# Searches begin in these states, too deep for a search from an empty bucket.
STATES = {
    "empty": [],
    # The owner has a checkpoint and may delete. Another run has listed before, and read the first commit.
    "listed early": [*active(0), "run 1 starts", "run 1 reads 1", *published(0, 0), *checkpoint(0, 2), *published(0, 1)],
    # A run has taken over, with a checkpoint and deletions, while a commit of the former owner is in flight.
    "late commit": [*active(0), "run 0 sends message 0", *active(1, read=(1,)), *published(1, 1), *checkpoint(1, 3),
                    *published(1, 2)],
    # A checkpoint of the owner is in flight while another run takes over.
    "late checkpoint": [*active(0), *published(0, 0), *checkpoint(0, 2), *published(0, 1), "run 0 sends checkpoint 3",
                        *active(1, read=(3,))[:-2]],
    # The same, and a last commit of the owner, which it does not know to be there.
    "late answer": [*active(0), *published(0, 0), *checkpoint(0, 2), *published(0, 1), "run 0 sends checkpoint 3",
                    *sent(0, 2), *active(1, read=(3, 4))[:-2]],
    # A claim lands where a deletion has freed its number, and a reader is about to read it.
    "late claim": [*active(0), "run 1 starts", "the reader reads 1", "run 1 reads 1", *published(0, 0), *checkpoint(0, 2),
                   *published(0, 1), "run 0 deletes commit 2", "run 1 sends its claim", "the claim of run 1"],
}
# Where breaking a rule leads to a fault.
FAULTS = {
    "create": "empty", "frozen": "empty", "identity": "empty", "data": "empty",
    "previous": "late claim", "relist": "listed early", "newest": "listed early", "claims": "late commit", "fenced": "late commit",
    "proof": "late checkpoint", "begun": "late answer", "names": "listed early",
}


def chain(state: str, without: str = "", more: int = 0) -> Chain:
    reads = "the reader reads 1" in STATES[state]
    broken = frozenset({without} if without else ())
    if state == "empty":
        return Chain(runs=2 + more, messages=2, checkpoints=1 + more, numbers=4 + more, without=broken)
    messages = sum(step.startswith("run") and " sends message" in step for step in STATES[state])
    return Chain(2 + more, messages + 1 + more, 2 + more, 7 + more, reads, without=broken)


@pytest.mark.parametrize("state", STATES)
def test_no_order_of_events_loses_a_message(state):
    result = search(chain(state), STATES[state])
    assert (result.fault, result.complete) == ("", True), result.trace


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule):
    result = search(chain(FAULTS[rule], rule), STATES[FAULTS[rule]])
    assert result.fault


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_no_order_of_more_events_loses_a_message(state):
    result = search(chain(state, more=1), STATES[state], limit=100_000)         # about a minute
    assert result.fault == "", result.trace
