"""Fixtures for all tests."""

import itertools

import pytest

from tests.support.daemon import Daemon


@pytest.fixture
def daemon(tmp_path):
    """Starts daemons: daemon(*flags) or daemon(*flags, unix=True); all are ended with the test.

    None may have said that a rule is broken, as the debug build does.
    """
    running = []
    numbers = itertools.count()

    def start(*flags, data_path=None, **more) -> Daemon:
        one = Daemon(data_path or tmp_path / f"data{next(numbers)}", *flags, **more)
        running.append(one)
        return one

    yield start
    for one in running:
        one.close()
    for one in running:
        broken = [line for line in one.log.splitlines() if "AssertionError" in line]
        assert not broken, broken[:3]
