"""Fixtures for all tests."""

import itertools

import pytest

from tests.support.daemon import Daemon


@pytest.fixture
def daemon(tmp_path):
    """Starts daemons: daemon(*flags) or daemon(*flags, unix=True); all are ended with the test."""
    running = []
    numbers = itertools.count()

    def start(*flags, data_path=None, **more) -> Daemon:
        one = Daemon(data_path or tmp_path / f"data{next(numbers)}", *flags, **more)
        running.append(one)
        return one

    yield start
    for one in running:
        one.close()
