"""Publishers share syncs: how long the next one waits for those that have just been answered."""

import pytest

from tests.compiled.work import Commits

SKIPPED = 16


@pytest.fixture
def commits():
    return Commits()


def test_the_next_commit_waits_for_as_many_as_both_had(commits):
    commits.ended(answered=3, waiting=2)
    assert [commits.waits(waiting, late=False) for waiting in (2, 3, 4)] == [True] * 3
    assert not commits.waits(5, late=False)
    assert not commits.waits(2, late=False)     # it has begun


def test_nobody_is_waited_for_where_nobody_else_waits(commits):
    for answered, waiting in (5, 0), (0, 5), (0, 0):
        commits.ended(answered, waiting)
        assert not commits.waits(waiting, late=False)


def test_the_wait_ends(commits):
    commits.ended(3, 2)
    assert commits.waits(3, late=False) and not commits.waits(3, late=True)
    commits.ended(3, 2)
    assert commits.waits(3, late=False)         # another came: again


def test_where_nobody_came_the_next_ones_do_not_wait(commits):
    commits.ended(3, 2)
    assert commits.waits(2, late=False) and not commits.waits(2, late=True)
    for _ in range(SKIPPED):
        commits.ended(3, 2)
        assert not commits.waits(2, late=False)
    commits.ended(3, 2)
    assert commits.waits(2, late=False)


@pytest.mark.parametrize(("took_ns", "most_ns"), [(100_000, 50_000), (10**9, 500_000), (0, 100_000)])
def test_half_of_a_commit_and_half_a_millisecond_at_most(commits, took_ns, most_ns):
    commits.ended(3, 2, took_ns)
    assert commits.left_ns <= most_ns


def test_a_commit_that_began_at_once_has_nothing_left_of_a_wait(commits):
    """As with a full buffer."""
    commits.ended(3, 2)
    commits.ended(2, 0)
    assert not commits.waits(0, late=False)
    commits.ended(3, 2)
    assert commits.waits(2, late=False)         # the earlier wait was not in vain
