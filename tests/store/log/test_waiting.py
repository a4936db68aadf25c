"""The heap of deferred messages, compared with a list."""

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.logs import Heap

CHANGE = st.one_of(st.tuples(st.just("push"), st.integers(0, 20)), st.tuples(st.just("take"), st.integers(0, 200)),
                   st.tuples(st.just("pop"), st.just(0)))


@given(st.lists(CHANGE, max_size=150))
def test_what_is_taken_out_of_the_middle_leaves_the_order(changes):
    heap, model = Heap(), []
    for offset, (change, value) in enumerate(changes):
        if change == "push":
            heap.push(value, offset)
            model.append((value, offset))
        elif model:
            at = value % len(model) if change == "take" else 0
            model.remove(heap.items()[at])
            (heap.take if change == "take" else lambda _: heap.pop())(at)
        items = heap.items()
        assert sorted(items) == sorted(model)
        assert all(items[(at - 1) // 2][0] <= items[at][0] for at in range(1, len(items)))
        assert (heap.first() or (None,))[0] == min(model, default=(None,))[0]


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=150))
def test_all_of_some_are_found_from_the_end_on(messages):
    """Like Cursor.forget_removed(): the one that moves into a place is visited next, or was already."""
    heap = Heap()
    for offset, (due, _) in enumerate(messages):
        heap.push(due, offset)
    left = len(heap)
    while left:
        left = min(left, len(heap))
        if left and messages[heap.items()[left - 1][1]][1]:
            heap.take(left - 1)
        elif left:
            left -= 1
    assert sorted(offset for _, offset in heap.items()) == [at for at, (_, gone) in enumerate(messages) if not gone]
