"""Timers: one deadline for each channel, set by the last arming."""

import asyncio
import time

from nsqc.broker.stats import RESUME_S, Timers


class Channel:
    """Records its calls."""

    def __init__(self):
        self.expired, self.resumed = [], []

    def expire(self):
        self.expired.append(time.monotonic_ns())

    def resume(self):
        self.resumed.append(time.monotonic_ns())


def run(scenario):
    async def main():
        timers = Timers(asyncio.get_running_loop())
        try:
            await scenario(timers)
        finally:
            timers.close()

    asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def after_ms(milliseconds):
    return time.monotonic_ns() + milliseconds * 1_000_000


def test_a_channel_is_called_once_and_not_before_its_deadline():
    async def scenario(timers):
        channel, deadline = Channel(), after_ms(20)
        timers.arm(channel, deadline)
        await until(lambda: channel.expired)
        assert channel.expired[0] >= deadline
        other = Channel()
        timers.arm(other, after_ms(20))
        await until(lambda: other.expired)
        assert len(channel.expired) == 1

    run(scenario)


def test_arming_again_replaces_the_deadline():
    async def scenario(timers):
        earlier, later, marker = Channel(), Channel(), Channel()
        timers.arm(earlier, after_ms(3_600_000))
        timers.arm(earlier, after_ms(10))
        timers.arm(later, after_ms(10))
        timers.arm(later, after_ms(3_600_000))
        timers.arm(marker, after_ms(30))
        await until(lambda: marker.expired)
        assert (len(earlier.expired), len(later.expired)) == (1, 0)

    run(scenario)


def test_a_deadline_that_has_passed_is_due_at_once():
    async def scenario(timers):
        channel = Channel()
        timers.arm(channel, after_ms(-1000))
        assert channel.expired == [], "never from within arm()"
        await until(lambda: channel.expired)

    run(scenario)


def test_what_is_disarmed_or_closed_is_not_called():
    async def scenario(timers):
        disarmed, closed, marker = Channel(), Channel(), Channel()
        timers.arm(disarmed, after_ms(10))
        timers.disarm(disarmed)
        timers.disarm(disarmed)
        timers.arm(closed, after_ms(10))
        timers.close()
        timers.arm(marker, after_ms(30))
        await until(lambda: marker.expired)
        assert disarmed.expired == closed.expired == []

    run(scenario)


def test_resume_later_leaves_a_moment():
    async def scenario(timers):
        queue, asked = Channel(), time.monotonic_ns()
        timers.resume_later(queue)
        await until(lambda: queue.resumed)
        # The loop's clock counts whole milliseconds.
        assert queue.resumed[0] - asked >= (RESUME_S - 0.002) * 1e9

    run(scenario)
