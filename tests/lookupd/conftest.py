"""Lookup servers for these tests."""

import itertools

import pytest

from tests.support.lookupd import LookupServer


@pytest.fixture
def lookupd(tmp_path):
    """Starts servers: lookupd(*flags); all are ended with the test, and none may have reported an uncaught
    exception."""
    running = []
    numbers = itertools.count()

    def start(*flags, **more) -> LookupServer:
        running.append(LookupServer(tmp_path / f"lookupd{next(numbers)}.log", *flags, **more))
        return running[-1]

    yield start
    for server in running:
        server.close()
        uncaught = [line for line in server.log.splitlines() if "Error: " in line or "panic" in line]
        assert not uncaught, uncaught[:3]
