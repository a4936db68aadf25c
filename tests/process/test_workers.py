"""No threads left in the system: accepted work is still done."""

import threading

import pytest

from nsqc.process.machine import Workers


@pytest.fixture
def no_threads(monkeypatch):
    """no_threads(): from now on the system refuses new threads."""
    def refuse(_):
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading.Thread, "start", refuse)


def test_work_waits_for_the_thread_there_is(no_threads):
    with Workers(4, "test") as workers:
        no_threads()
        assert [future.result() for future in [workers.submit(divmod, 7, number) for number in range(1, 8)]] == [
            divmod(7, number) for number in range(1, 8)]


def test_without_any_thread_it_raises_at_once(no_threads):
    no_threads()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Workers(4, "test")


def test_more_threads_are_started_while_there_are_any():
    met = threading.Barrier(3)
    with Workers(3, "test") as workers:
        assert sorted(future.result() for future in [workers.submit(met.wait) for _ in range(3)]) == [0, 1, 2]
