"""Objects that can be reached, counted in parts."""

import gc
import sys
from collections import Counter

import pytest

from nsqc.process.census import Census


class Node:
    def __init__(self, *others: object) -> None:
        self.others = list(others)


class Slotted:
    __slots__ = ("other",)


def counted(*roots: object, slice_ns: int = 0) -> dict[type, int]:
    census = Census(roots)
    while census.go_on(slice_ns):
        pass
    assert census.complete
    return census.counts


def test_each_object_once():
    one, two, slotted = Node(), Node(), Slotted()
    one.others += [two, two, one, slotted]
    slotted.other = {"x": [two], (): (one, [])}
    two.others.append(lambda: slotted)
    counts = counted(one, one)
    assert (counts[Node], counts[Slotted]) == (2, 1)


@pytest.mark.parametrize("slice_ns", [0, 10**9])
def test_large_containers(slice_ns):
    """They are followed in parts."""
    for container in ([Node() for _ in range(5000)], {number: Node() for number in range(5000)}, {Node(): None for _ in range(5000)},
                      tuple(Node() for _ in range(5000)), {Node() for _ in range(5000)}):
        assert counted([container], slice_ns=slice_ns)[Node] == 5000


def test_containers_that_change_while_they_are_followed():
    for container in ({number: Node() for number in range(5000)}, [Node() for _ in range(5000)]):
        census = Census([container])
        census.go_on(0)
        while census.go_on(0):
            container.clear()
            if isinstance(container, dict):
                container.update({Node(): Node() for _ in range(10)})
        assert 0 < census.counts[Node] <= 5020


def test_nothing_is_kept():
    node = Node(Node(), [Node()])
    before = sys.getrefcount(node), sys.getrefcount(node.others)
    counted(node)
    unfinished = Census([node])
    unfinished.go_on(0)
    unfinished.close()
    unfinished.close()
    assert not unfinished.go_on(0)
    del unfinished
    assert (sys.getrefcount(node), sys.getrefcount(node.others)) == before


def test_it_agrees_with_the_collector():
    nodes = [Node(Node(), {"x": Slotted()}) for _ in range(3000)]
    gc.collect()
    counts, known = counted(nodes, sys.modules), Counter(map(type, gc.get_objects()))
    assert (counts[Node], counts[Slotted]) == (known[Node], known[Slotted]) == (6000, 3000)
