"""Threads for file work: placement of jobs, their concurrency, and delivery of results."""

import asyncio
import os
import threading

import pytest

from nsqc.store.disk.fileio import IoPool
from tests.compiled.work import Jobs
from tests.support.patience import WAIT_SECONDS


@pytest.fixture
def gate():
    """A pipe: jobs that wait at its read end are released by writing to the other."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def with_loop(scenario):
    """Runs scenario(pool of two threads, jobs) on a loop."""
    async def main():
        pool = IoPool(2, asyncio.get_running_loop())
        try:
            await scenario(pool, Jobs())
        finally:
            while pool.under_way:
                await asyncio.sleep(0.001)
            pool.close()
    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


async def ended(jobs: Jobs, count: int) -> None:
    while len(jobs.done) < count:
        await asyncio.sleep(0.001)


def test_without_threads_jobs_run_at_once():
    pool, jobs = IoPool(), Jobs()
    for number in range(3):
        jobs.submit(pool, number)
    here = threading.get_ident()
    assert jobs.done == [(number, here, here) for number in range(3)]
    assert (pool.threads, pool.under_way) == (0, 0)


def test_threads_without_a_loop_are_none():
    assert IoPool(4).threads == 0


def test_results_are_collected_on_the_loop():
    async def scenario(pool, jobs):
        for number in range(50):
            jobs.submit(pool, number)
        assert pool.under_way == 50 and jobs.done == []
        await ended(jobs, 50)
        here = threading.get_ident()
        assert sorted(number for number, _, _ in jobs.done) == list(range(50))
        assert all(ran != here and collected == here for _, ran, collected in jobs.done)
        assert len({ran for _, ran, _ in jobs.done}) <= 2 and pool.under_way == 0

    with_loop(scenario)


def test_a_job_that_waits_holds_up_its_thread_only(gate):
    async def scenario(pool, jobs):
        jobs.submit(pool, 0, gate[0])
        for number in range(1, 6):
            jobs.submit(pool, number)
        await ended(jobs, 5)
        assert [number for number, _, _ in jobs.done] == [1, 2, 3, 4, 5], "one thread keeps their order"
        os.write(gate[1], b"x")
        await ended(jobs, 6)

    with_loop(scenario)


def test_no_more_threads_than_allowed(gate):
    async def scenario(pool, jobs):
        for number in range(5):
            jobs.submit(pool, number, gate[0])
        await asyncio.sleep(0.1)        # while the gate is closed each existing thread holds a job
        os.write(gate[1], b"xxxxx")
        await ended(jobs, 5)
        assert len({ran for _, ran, _ in jobs.done}) <= 2

    with_loop(scenario)


def test_short_jobs_run_at_once():
    """On a busy machine one may be slow, which sends the next ones to threads for a while; a new pool starts afresh."""
    at_once = []

    async def scenario(pool, jobs):
        jobs.submit(pool, 0, is_short=True)
        await ended(jobs, 1)
        at_once.append(jobs.done[0][1] == threading.get_ident())

    for _ in range(50):
        with_loop(scenario)
        if at_once[-1]:
            return
    pytest.fail("no short job ran at once")


def test_after_a_slow_one_short_jobs_go_to_threads():
    async def scenario(pool, jobs):
        jobs.submit(pool, 0, is_short=True, spin_ns=3_000_000)
        await ended(jobs, 1)
        jobs.submit(pool, 1, is_short=True)
        await ended(jobs, 2)
        assert jobs.done[1][1] != threading.get_ident()

    with_loop(scenario)


def test_short_jobs_that_take_much_of_the_time_go_to_threads():
    """Where another process interrupts the jobs, they do not take much of it: a new pool tries again."""
    elsewhere = []

    async def scenario(pool, jobs):
        for number in range(8):
            jobs.submit(pool, number, is_short=True, spin_ns=1_000_000)
        await ended(jobs, 8)
        elsewhere.append(any(ran != threading.get_ident() for _, ran, _ in jobs.done))

    for _ in range(50):
        with_loop(scenario)
        if elsewhere[-1]:
            return
    pytest.fail("all short jobs ran at once")


def test_a_closed_pool_runs_jobs_at_once():
    async def scenario(pool, jobs):
        jobs.submit(pool, 0)
        await ended(jobs, 1)
        pool.close()
        jobs.submit(pool, 1)
        here = threading.get_ident()
        assert jobs.done[1] == (1, here, here)
        pool.close()
        pool.collect()

    with_loop(scenario)
