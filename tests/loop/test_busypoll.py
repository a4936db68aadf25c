"""Busy polling begins after many short waits in a row, and only then."""

import asyncio
import socket
import threading

import pytest
import uvloop

from nsqc.loop.uv import BusyPoll
from tests.support.echo import Echo

SECOND_NS = 1_000_000_000


def ping_pong(sock, count) -> None:
    for _ in range(count):
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"


def counts_after(most_ns: int, work) -> tuple[int, int]:
    """The counters of a loop that serves an Echo, once work(socket) on a thread is done."""
    async def main():
        loop = asyncio.get_running_loop()
        polling = BusyPoll(loop, most_ns)
        here, there = socket.socketpair()
        await loop.create_connection(Echo, sock=there)
        with here:
            await loop.run_in_executor(None, work, here)
        counts = polling.counts
        polling.close()
        polling.close()
        assert polling.counts == (0, 0)
        return counts

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_dense_traffic_is_polled_for():
    # All waits are short: the limit is a second.
    polls, hits = counts_after(SECOND_NS, lambda sock: ping_pong(sock, 500))
    assert polls > 200
    assert hits > 0.9 * polls


@pytest.mark.parametrize("most_ns", [0, 1])
def test_waits_that_are_long_are_slept_through(most_ns):
    # No wait ends within a nanosecond; 0 is off.
    assert counts_after(most_ns, lambda sock: ping_pong(sock, 200)) == (0, 0)


def test_polling_ends_with_dense_traffic():
    def work(sock):
        ping_pong(sock, 200)
        for _ in range(20):
            threading.Event().wait(0.05)        # longer than the limit
            ping_pong(sock, 1)

    polls, hits = counts_after(20_000_000, work)
    assert polls - hits <= 5        # each long wait cancels eight short ones


def test_callbacks_of_threads_end_a_wait_that_polls():
    async def main():
        loop = asyncio.get_running_loop()
        polling = BusyPoll(loop, SECOND_NS)
        for _ in range(200):
            done = loop.create_future()
            threading.Timer(0.001, loop.call_soon_threadsafe, (done.set_result, None)).start()
            await done
        polls, hits = polling.counts
        polling.close()
        assert polls > 50
        assert hits > 0.9 * polls

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
