"""Threads for file work: where jobs run, how many at a time, and where their results are collected."""

import asyncio
import itertools
import os
import select
import threading

import pytest

from nsqc.store.disk.pool import IoPool
from tests.compiled.pool import Jobs, parts_begun
from tests.support.patience import WAIT_SECONDS


@pytest.fixture
def gate():
    """A pipe: jobs that wait at its read end are let through by writing to the other."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def with_loop(scenario, threads: int = 2, gates=()):
    """Runs scenario(pool of so many threads, jobs) on a loop; whatever waits at gates ends with it."""
    async def main():
        pool = IoPool(threads, asyncio.get_running_loop())
        try:
            await scenario(pool, Jobs())
        finally:
            for gate in gates:
                open_gate(gate)
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
        await asyncio.sleep(0.1)        # while the gate is closed each thread that there is holds a job
        os.write(gate[1], b"xxxxx")
        await ended(jobs, 5)
        assert len({ran for _, ran, _ in jobs.done}) <= 2

    with_loop(scenario)


def test_short_jobs_are_left_to_threads_until_enough_were_quick():
    async def scenario(pool, jobs):
        for number in range(32):
            jobs.submit(pool, number, is_short=True)
            await ended(jobs, number + 1)
        assert all(ran != threading.get_ident() for _, ran, _ in jobs.done)

    with_loop(scenario)


def test_then_they_run_at_once():
    """On a busy machine one may be slow, which keeps all others away for a while; a new pool has no such memory."""
    at_once = []

    async def scenario(pool, jobs):
        for number in range(40):
            jobs.submit(pool, number, is_short=True)
            await ended(jobs, number + 1)
        at_once.append(any(ran == threading.get_ident() for _, ran, _ in jobs.done))

    for _ in range(50):
        with_loop(scenario)
        if at_once[-1]:
            return
    pytest.fail("no short job was run at once")


def test_much_to_write_is_left_to_threads():
    async def scenario(pool, jobs):
        for number in range(40):
            jobs.submit(pool, number, is_short=True, size=16 << 20)
            await ended(jobs, number + 1)
        assert all(ran != threading.get_ident() for _, ran, _ in jobs.done)

    with_loop(scenario)


def test_after_a_slow_one_short_jobs_are_left_to_threads(gate):
    async def scenario(pool, jobs):
        for number in range(40):
            jobs.submit(pool, number, is_short=True)
            await ended(jobs, number + 1)
        # Much to write, so this one is not run here, where nobody could open the gate.
        jobs.submit(pool, 40, gate[0], is_short=True, size=1 << 30)
        await asyncio.sleep(0.05)
        os.write(gate[1], b"x")
        await ended(jobs, 41)
        jobs.submit(pool, 41, is_short=True)
        await ended(jobs, 42)
        assert jobs.done[-1][1] != threading.get_ident()

    with_loop(scenario)


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


# ---------------------------------------------------------------------- parts of jobs


@pytest.fixture
def gates():
    """Two pipes, as gate is one: of a job, and of its part."""
    ends = [os.pipe(), os.pipe()]
    yield ends
    for end in itertools.chain(*ends):
        os.close(end)


def open_gate(gate) -> None:
    os.write(gate[1], b"x")


async def is_passed(gate) -> None:
    """Until somebody has gone through it."""
    while select.select([gate[0]], [], [], 0)[0]:
        await asyncio.sleep(0.001)


def test_without_threads_a_part_runs_at_once():
    pool, jobs = IoPool(), Jobs()
    jobs.submit(pool, 0, divided=True)
    here = threading.get_ident()
    assert jobs.done == [(0, here, here)]


def test_a_part_runs_on_another_thread_while_its_job_goes_on(gates):
    of_job, of_part = gates

    async def scenario(pool, jobs):
        jobs.submit(pool, 0, of_job[0], divided=True, part_gate=of_part[0])
        open_gate(of_part)
        await is_passed(of_part)
        assert jobs.done == []
        open_gate(of_job)
        await ended(jobs, 1)
        (_, ran, part_ran), = jobs.done
        assert threading.get_ident() not in (ran, part_ran) and ran != part_ran

    with_loop(scenario, 3, gates)


def test_a_job_waits_for_its_part(gates):
    of_job, of_part = gates

    async def scenario(pool, jobs):
        before = parts_begun()
        jobs.submit(pool, 0, of_job[0], divided=True, part_gate=of_part[0])
        while parts_begun() == before:
            await asyncio.sleep(0.001)
        open_gate(of_job)
        await is_passed(of_job)
        await asyncio.sleep(0.1)
        assert jobs.done == []
        open_gate(of_part)
        await ended(jobs, 1)
        (_, ran, part_ran), = jobs.done
        assert ran != part_ran

    with_loop(scenario, 3, gates)


def test_a_job_runs_its_part_where_no_thread_would_be_left_for_others(gates):
    async def scenario(pool, jobs):
        jobs.submit(pool, 0, gates[0][0])       # until the end
        jobs.submit(pool, 1, divided=True)
        await ended(jobs, 1)
        (number, ran, part_ran), = jobs.done
        assert number == 1 and ran == part_ran
        open_gate(gates[0])
        await ended(jobs, 2)

    with_loop(scenario, 3, gates)


def test_parts_of_many_jobs():
    """None waits for one that waits itself."""
    async def scenario(pool, jobs):
        for number in range(2_000):
            jobs.submit(pool, number, divided=True)
        await ended(jobs, 2_000)
        assert sorted(number for number, _, _ in jobs.done) == list(range(2_000))

    with_loop(scenario, 3)
