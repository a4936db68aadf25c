"""pytest fixtures: nsqc_daemon, nsqc_producer, nsqc_consume, nsqc_aio_producer, nsqc_aio_consume. pytest loads this
automatically if nsqc was installed with pip."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from nsqc.client import Producer, aio
    from nsqc.testing import Daemon

MARKER = "nsqc_daemon(*flags): flags of nsqd for the nsqc_daemon fixture of this test"


class Consume(Protocol):
    """The nsqc_consume fixture."""

    def __call__(self, topic: str, count: int = 1, channel: str = "test", timeout: float = 10.0) -> list[bytes]:
        """Consumes and finishes messages; returns their bodies. Fails the test if fewer than count arrive within
        timeout seconds."""


class AioConsume(Protocol):
    """The nsqc_aio_consume fixture."""

    def __call__(self, topic: str, count: int = 1, channel: str = "test",
                 timeout: float = 10.0) -> Awaitable[list[bytes]]:
        """As of Consume, on the event loop of the test."""


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def nsqc_daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A private daemon for this test, on Unix sockets; `address` is for clients.
    @pytest.mark.nsqc_daemon("--max-msg-size=10") gives it flags."""
    from nsqc.testing import Daemon  # imported here: tests without the fixture do not need it

    marker = request.node.get_closest_marker("nsqc_daemon")
    with Daemon(*(marker.args if marker is not None else ())) as daemon:
        yield daemon


@pytest.fixture
def nsqc_producer(nsqc_daemon: Daemon) -> Iterator[Producer]:
    """A blocking Producer connected to nsqc_daemon."""
    from nsqc.client import Producer

    with Producer(nsqc_daemon.address) as producer:
        yield producer


@pytest.fixture
def nsqc_consume(nsqc_daemon: Daemon) -> Consume:
    """Consumes messages of nsqc_daemon: nsqc_consume("orders", 2) returns two bodies."""
    from nsqc.client import Consumer

    def consume(topic: str, count: int = 1, channel: str = "test", timeout: float = 10.0) -> list[bytes]:
        deadline = time.monotonic() + timeout
        bodies: list[bytes] = []
        with Consumer(topic, channel, nsqc_daemon.address) as consumer:
            while len(bodies) < count:
                message = consumer.get(max(deadline - time.monotonic(), 0))
                if message is None:
                    pytest.fail(f"{len(bodies)} of {count} messages of {topic}/{channel} arrived within {timeout:g} s")
                bodies.append(message.body)
                message.finish()
        return bodies
    return consume


# Without coroutines of their own, so that they work with every plugin that runs coroutine functions as tests.

@pytest.fixture
def nsqc_aio_producer(nsqc_daemon: Daemon) -> aio.Producer:
    """An asyncio Producer for nsqc_daemon: `async with nsqc_aio_producer as producer`."""
    from nsqc.client import aio

    return aio.Producer(nsqc_daemon.address)


@pytest.fixture
def nsqc_aio_consume(nsqc_consume: Consume) -> AioConsume:
    """Consumes messages of nsqc_daemon: await nsqc_aio_consume("orders", 2) returns two bodies."""
    from asyncio import to_thread

    def consume(topic: str, count: int = 1, channel: str = "test", timeout: float = 10.0) -> Awaitable[list[bytes]]:
        return to_thread(nsqc_consume, topic, count, channel, timeout)
    return consume
