"""Long work takes its share of an iteration and no more."""

import asyncio
import itertools
import time

from nsqc.loop.slow import Share

SHARE_S = 0.005


def run(work):
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


def test_steps_run_in_rotation_until_nothing_is_left():
    async def work(loop):
        shared, done = Share(SHARE_S, "work"), []

        def step(name, left):
            def take():
                done.append(name)
                left.pop()
                time.sleep(SHARE_S)
                return bool(left)
            return take

        shared.add(step("a", [1, 2, 3]))
        shared.add(step("b", [1]))
        assert done == []
        iterations = 0
        while len(done) < 4:
            before = len(done)
            await asyncio.sleep(0)
            assert len(done) <= before + 1
            iterations += 1
        assert done == ["a", "b", "a", "a"]
        await asyncio.sleep(0.01)
        assert not shared.over()

    run(work)


def test_the_share_ends_and_comes_again_in_the_next_iteration():
    async def work(loop):
        shared = Share(SHARE_S, "work")
        assert not shared.over()
        time.sleep(SHARE_S)
        assert shared.over()
        await shared.rest()
        assert not shared.over()

    run(work)


def test_others_have_the_loop_meanwhile():
    async def work(loop):
        shared, count, seen = Share(SHARE_S, "work"), 0, []
        left = list(range(20))

        def step():
            time.sleep(SHARE_S / 2)
            left.pop()
            return bool(left)

        shared.add(step)
        while left:
            await asyncio.sleep(0)
            count += 1
            seen.append(len(left))
        assert count >= 9
        assert max(one - other for one, other in itertools.pairwise(seen)) <= 2

    run(work)


def test_work_that_uses_the_share_up_waits_behind_the_others():
    async def work(loop):
        shared, ran = Share(SHARE_S, "work"), []

        def greedy():
            ran.append("greedy")
            time.sleep(SHARE_S)
            assert shared.over()
            shared.add(greedy if len(ran) < 4 else lambda: None)

        assert not shared.over()
        greedy()
        shared.add(lambda: ran.append("modest"))
        while len(ran) < 4:
            await asyncio.sleep(0)
        assert ran == ["greedy", "greedy", "modest", "greedy"]

    run(work)
