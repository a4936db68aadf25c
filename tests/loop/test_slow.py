"""Iterations that take too long: measurement, names, log lines."""

import asyncio
import gc
import re
import sys
import time

import pytest
import uvloop

from nsqc.loop import slow
from nsqc.loop.slow import SlowLoop, Steps
from nsqc.loop.uv import Watch, span_began, span_ended

MS = 1_000_000
LIMIT = 20 * MS


def watched(*callbacks, limit=LIMIT, between=0.0) -> list[tuple[int, int, str]]:
    """The reports of a loop that calls each of these in its own iteration."""
    loop = uvloop.new_event_loop()
    seen: list[tuple[int, int, str]] = []
    one = Watch(loop, limit, lambda *report: seen.append(report))

    async def main():
        await asyncio.sleep(0.01)
        for callback in callbacks:
            loop.call_soon(callback)
            await asyncio.sleep(0.001)
            await asyncio.sleep(between)

    try:
        loop.run_until_complete(main())
    finally:
        one.close()
        loop.close()
    return seen


def busy(ms: float) -> None:
    end = time.monotonic() + ms / 1000
    while time.monotonic() < end:
        pass


def handler(ms: float, kind: str = "work of", what: object = "somebody"):
    def run():
        began = span_began()
        busy(ms)
        span_ended(began, kind, what)
    return run


def test_a_slow_handler_is_named():
    reports = [report for report in watched(handler(40)) if report[2]]
    [(ns, handler_ns, name)] = reports
    assert name == "work of somebody"
    assert 40 * MS <= handler_ns <= ns


def test_a_slow_iteration_without_a_named_handler():
    assert "" in [name for ns, _, name in watched(lambda: busy(40)) if ns >= 39 * MS]


def test_the_longest_is_named_and_names_do_not_stay():
    def iteration():
        busy(70)
        # As if they had begun that long ago: on a busy machine, a handler of 8 ms may take more than one of 60 ms.
        for seconds, what in ((8, "a"), (60, "b"), (6, "c")):
            span_ended(span_began() - seconds * 1000 * MS, "work of", what)

    names = [name for ns, _, name in watched(iteration, lambda: busy(70)) if ns >= 69 * MS]
    assert [name for name in names if name] == ["work of b"]
    assert names[-1] == ""


def test_what_a_handler_spends_its_time_on_is_named_instead():
    """A garbage collection between commands must be reported."""
    def outer():
        began = span_began()
        handler(40, "garbage collection", "")()
        span_ended(began, "commands of", "somebody")

    assert "garbage collection" in [name for *_, name in watched(outer)]


def test_waiting_is_not_work():
    assert not [report for report in watched(lambda: None, between=1.0, limit=700 * MS) if report[0] > 950 * MS]


def test_steps_of_a_coroutine():
    async def work():
        await asyncio.sleep(0)
        busy(40)
        with pytest.raises(ZeroDivisionError):
            await failing()
        return 7

    async def failing():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    results = []

    def run():
        task = asyncio.get_running_loop().create_task(Steps(work(), "HTTP", "GET /x"))
        task.add_done_callback(lambda done: results.append(done.result()))

    assert "HTTP GET /x" in [name for *_, name in watched(run, between=0.1)]
    assert results == [7]


def test_a_cancelled_coroutine_ends():
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main():
        task = asyncio.create_task(Steps(work(), "HTTP", "GET /x"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == [True]


def test_texts_that_cannot_be_made():
    class Odd:
        def __str__(self):
            raise RuntimeError

    assert "work of" in [name for *_, name in watched(handler(40, what=Odd()))]


def test_errors_of_the_report_do_not_end_the_loop():
    loop = uvloop.new_event_loop()
    one = Watch(loop, LIMIT, lambda *report: 1 / 0)
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.call_soon(busy, 40)
    loop.run_until_complete(asyncio.sleep(0.01))
    one.close()
    one.close()
    loop.close()


def test_closed_in_any_state():
    """Before the loop ever runs, during an iteration, and forgotten while it runs."""
    for rounds in range(3):
        loop = uvloop.new_event_loop()
        one = Watch(loop, LIMIT, print)
        if rounds == 1:
            loop.call_soon(one.close)
            loop.run_until_complete(asyncio.sleep(0.01))
        one.set_limit(LIMIT)
        one.close()
        loop.close()
    gc.collect()
    assert watched(handler(40))


class Lines:
    def __init__(self):
        self.lines = []

    def warn(self, text, *arguments):
        self.lines.append(text % arguments if arguments else text)


def test_lines_are_few_and_nothing_is_lost(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(slow.time, "monotonic", lambda: now[0])
    log = Lines()
    loop = SlowLoop(None, log)
    for ns in (150, 300, 200):
        loop._report(ns * MS, ns * MS // 2, "HTTP GET /%s")
    assert log.lines == ["LOOP: an iteration took 150 ms, 75 ms of it in HTTP GET /%s"]
    now[0] += slow.EVERY_S
    loop._report(120 * MS, 0, "")
    assert log.lines[1:] == ["LOOP: an iteration took 120 ms; no single handler took long; before it 2 others, "
                             "of which the worst took 300 ms, 150 ms of it in HTTP GET /%s"]
    loop._report(500 * MS, 0, "")
    loop.close()
    assert log.lines[2:] == ["LOOP: the worst of 1 more slow iterations took 500 ms; no single handler took long"]


def test_the_worst_of_an_hour(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(slow.time, "monotonic", lambda: now[0])
    loop = SlowLoop(None, Lines())
    loop._watch = True
    for minute in range(120):
        for second in range(50):
            now[0] = minute * 60.0 + second
            loop._report((100 + minute + second) * MS, 0, f"m{minute}")
    lines = loop.page().splitlines()
    assert lines[0].endswith(f": {60 * 50}")
    took = [int(re.search(r"took (\d+) ms", line)[1]) for line in lines[1:]]
    assert took == sorted(took, reverse=True)
    assert took[0] == 100 + 119 + 49
    assert len(took) == 60 * slow.KEPT


def test_a_uvloop_that_hides_its_loop(monkeypatch):
    class Hidden:
        class loop:
            __file__ = "/dev/null"

    loop, log = uvloop.new_event_loop(), Lines()
    monkeypatch.setitem(sys.modules, "uvloop", Hidden)
    SlowLoop(loop, log).set_limit(LIMIT)
    assert log.lines == ["LOOP: --slow-loop has no effect - uvloop's library cannot be opened"]
