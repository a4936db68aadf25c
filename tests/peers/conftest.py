"""Fake servers that end with the test."""

import pytest

from tests.peers import fakes


def factory(kind):
    @pytest.fixture
    def make():
        running = []

        def start(*arguments, **more):
            running.append(kind(*arguments, **more))
            return running[-1]

        yield start
        for one in running:
            one.close()

    return make


lookupd = factory(fakes.Lookupd)
statsd = factory(fakes.Statsd)
