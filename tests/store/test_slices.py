"""Long work in slices: round-robin, within an iteration's time, and to its end."""

import socket
from types import SimpleNamespace

from nsqc.loop.uv import Unread
from nsqc.store import message
from nsqc.store.work import Slicer
from tests.compiled.work import Work, begins_within, throw_away


class Loop:
    """Collects the calls for the next iteration."""

    def __init__(self):
        self.calls = []

    def call_soon(self, call):
        self.calls.append(call)

    def iterate(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_works_take_turns():
    loop, journal = Loop(), []
    slicer = Slicer(loop)
    for name, slices in (("a", 3), ("b", 1), ("c", 2)):
        work = Work(slicer, name, journal, slices)
        work.start()
        work.start()
    assert len(loop.calls) == 1 and journal == []
    while loop.calls:
        loop.iterate()
    assert journal == ["a", "b", "c", "a", "c", "a"]


def test_an_iteration_leaves_the_rest_to_the_next():
    loop, journal = Loop(), []
    slicer = Slicer(loop)
    works = [Work(slicer, name, journal, 20, greedy=True) for name in "ab"]
    for work in works:
        work.start()
    loop.iterate()
    assert 1 <= len(journal) <= 5, "slices that take all their time fill an iteration"
    assert len(loop.calls) == 1
    while loop.calls:
        loop.iterate()
    assert sorted(journal) == ["a"] * 20 + ["b"] * 20
    assert [work.left for work in works] == [0, 0]


def several(loop, journal):
    """Whether an iteration has more than one slice: on a busy machine not each of them has, for want of a processor."""
    for _ in range(200):
        before = len(journal)
        loop.iterate()
        if len(journal) > before + 1:
            return True
    return False


def test_slices_give_way_to_a_client_that_waits():
    loop, journal, unread = Loop(), [], Unread()
    slicer = Slicer(loop, unread)
    client, ours = socket.socketpair()
    with client, ours:
        unread.add(ours.fileno())
        for name in "ab":
            Work(slicer, name, journal, 1000, greedy=True).start()
        assert several(loop, journal)
        journal.clear()
        client.send(b"PUB")
        loop.iterate()
        assert len(journal) == 1, "one slice goes on, or nothing would while such clients come"
        loop.iterate()
        assert len(journal) == 2 and journal[0] != journal[1]
        ours.recv(100)
        unread.note(ours.fileno(), 1)
        unread.answered()
        assert several(loop, journal)


def test_slices_are_short_once_for_each_answer_that_is_due():
    loop, journal, unread = Loop(), [], Unread()
    slicer = Slicer(loop, unread)
    client, ours = socket.socketpair()
    with client, ours:
        unread.add(ours.fileno())
        Work(slicer, "a", journal, 1000, greedy=True).start()
        unread.note(ours.fileno(), 1)
        loop.iterate()
        assert len(journal) == 1
        assert several(loop, journal), "nobody sends, so nobody says that the answer has left"


def test_many_clients_that_wait_leave_slices_as_much_as_they_had():
    loop, journal, unread = Loop(), [], Unread()
    slicer = Slicer(loop, unread)
    client, ours = socket.socketpair()
    with client, ours:
        unread.add(ours.fileno())
        Work(slicer, "a", journal, 1000, greedy=True).start()
        client.send(b"PUB")

        def crowd():
            for _ in range(40):
                unread.note(ours.fileno(), 40_000)
            unread.answered()

        def iterate():
            crowd()
            loop.iterate()

        assert several(SimpleNamespace(iterate=iterate), journal)


def test_a_slice_within_another_one_does_not_move_its_end():
    assert begins_within(Slicer(Loop()), 50_000_000)


def test_finish_does_all_of_it():
    loop, journal = Loop(), []
    slicer = Slicer(loop)
    Work(slicer, "a", journal, 5).start()
    slicer.finish()
    assert journal == ["a"] * 5
    loop.iterate()
    assert journal == ["a"] * 5 and loop.calls == []


def test_without_a_loop_a_slice_does_not_end():
    slicer, journal = Slicer(), []
    work = Work(slicer, "a", journal, 2)
    work.start()
    assert journal == []
    slicer.finish()
    assert work.left == 0


def test_python_calls():
    loop, left = Loop(), [3]

    def step():
        left[0] -= 1
        return left[0]

    Slicer(loop).call(step)
    for _ in range(3):
        loop.iterate()
    assert left == [0] and loop.calls == []


def test_the_trash_frees_everything():
    deliveries, places = message.deliveries_alive(), message.places_alive()
    loop = Loop()
    slicer = Slicer(loop)
    throw_away(slicer, 2000, 1000)
    assert (message.deliveries_alive(), message.places_alive()) == (deliveries + 1000, places + 1000)
    while loop.calls:
        loop.iterate()
    assert (message.deliveries_alive(), message.places_alive()) == (deliveries, places)


def test_without_a_loop_the_trash_is_freed_at_once():
    deliveries, places = message.deliveries_alive(), message.places_alive()
    throw_away(Slicer(), 100, 100)
    assert (message.deliveries_alive(), message.places_alive()) == (deliveries, places)
