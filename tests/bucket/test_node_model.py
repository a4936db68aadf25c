"""The rules of a node's disk and bucket: together they suffice, and each is needed."""

import pytest

from tests.bucket.node_model import RULES, Node
from tests.bucket.search import search

# Bounds (bodies, moves of the channel, runs, mishaps), and steps before the search.
KILLED = ["run 0 begins on machine 0", "the claim of run 0", "run 0 owns", "run 0 stores", "machine 0 is killed"]
SEARCHES = {
    "messages": ((2, 0, 2, 1), []),
    "channel": ((1, 1, 2, 1), []),
    "claims": ((1, 0, 3, 2), []),
    "unshipped files": ((2, 0, 3, 2), [*KILLED, "run 1 begins on machine 1", "the claim of run 1", "run 1 owns"]),
}
LARGE = {"messages": (2, 0, 3, 2), "channel": (1, 2, 2, 1), "claims": (2, 1, 3, 2), "unshipped files": (3, 1, 3, 2)}
FAULTS = {
    "journal": SEARCHES["claims"], "all tried": SEARCHES["claims"], "refuse": SEARCHES["unshipped files"],
    "append": SEARCHES["messages"], "sequence": ((1, 2, 2, 1), []), "reserved": SEARCHES["messages"],
    "cursors first": ((1, 2, 2, 1), []),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_no_order_of_mishaps_breaks_a_promise(name):
    bounds, prefix = SEARCHES[name]
    result = search(Node(*bounds), prefix)
    assert (result.fault, result.complete) == ("", True), result.trace


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule):
    bounds, prefix = FAULTS[rule]
    assert search(Node(*bounds, without=frozenset({rule})), prefix).fault


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_no_order_of_more_mishaps_breaks_a_promise(name):
    result = search(Node(*LARGE[name]), SEARCHES[name][1], limit=200_000)
    assert result.fault == "", result.trace
