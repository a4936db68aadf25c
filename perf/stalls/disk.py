"""A disk that takes 30 ms for each call: its effect on a topic in memory while another one overflows to it."""

from __future__ import annotations

from typing import Any

from perf import programs
from perf.load.server import Server, Side
from perf.stalls.stage import Scale, Stage

NAME = "slow-disk"
SLOW_MS = 30
WORSE = 2.0             # the allowed p99, as a multiple of the undisturbed one
RATE = 500              # messages a second to the topic in memory
FLAGS = ("--mem-queue-size=1000",)


def once(side: Side, scale: Scale, slow_ms: int) -> dict[str, Any]:
    """The topic `disk` overflows and has a consumer, the topic `mem` is delivered at once."""
    environment = {"LD_PRELOAD": str(programs.slow_disk()), "NSQC_TEST_SLOW_PATH": "{data}",
                   "NSQC_TEST_SLOW_MS": str(slow_ms)}
    with Server(side, *FLAGS, environment=environment) as server:
        stage = Stage(server, scale)
        stage.topics = ["disk"]
        try:
            server.channel("mem", "ch")
            server.channel("disk", "ch")
            seconds = stage.seconds(6)
            stage.publish(stage.count(50_000), "disk")
            publisher = stage.client("pub", "-T", "disk", "-c", 1, "-b", 200, "-w", 1, "-t", seconds)
            consumer = stage.client("sub", "-T", "disk", "-C", "ch", "-c", 1, "-r", 100, "-t", seconds)
            with stage.watched():
                latency = stage.client("latency", "-T", "mem", "-r", 100, "-R", RATE, "-t", stage.seconds(4))
                pause = [stage.timed_call("POST", f"/topic/{what}?topic=mem2") for what in ("create", "pause")]
                times = latency.end()
            published, consumed = publisher.end(), consumer.end()
        finally:
            stage.close()
    return {"slow_ms": slow_ms, "p50_us": times["p50_us"], "p99_us": times["p99_us"], "max_us": times["max_us"],
            "ping_p50_ms": stage.result.p50, "ping_p99_ms": stage.result.p99, "ping_max_ms": stage.result.max,
            "pause_s": pause[1], "published_per_s": published["per_s"], "consumed_per_s": consumed["per_s"],
            "dropped": stage.result.dropped}


def run(side: Side, scale: Scale) -> dict[str, Any]:
    """Without and with the delay.

    A daemon that makes its system calls directly, as Go programs do, cannot be slowed this way.
    """
    undisturbed, slow = once(side, scale, 0), once(side, scale, SLOW_MS)
    ratio = slow["p99_us"] / undisturbed["p99_us"]
    return {"undisturbed": undisturbed, "slow": slow, "p99 ratio": ratio, "ok": ratio <= WORSE}


def text(results: dict[str, Any]) -> str:
    """Three lines and a heading."""
    lines = [f"each call on a file of the data path takes {SLOW_MS} ms longer; "
             f"a topic in memory beside one that overflows to disk, {RATE} messages a second"]
    for name in ("undisturbed", "slow"):
        result = results[name]
        lines.append(f"  {name:11}  PUB to delivery p50 {result['p50_us']:,.0f} µs, p99 {result['p99_us']:,.0f} µs, "
                     f"max {result['max_us']:,.0f} µs; /ping p99 {result['ping_p99_ms']:.1f} ms, "
                     f"max {result['ping_max_ms']:.1f} ms; /topic/pause {result['pause_s']:.2f} s; "
                     f"on disk {result['published_per_s']:,.0f}/s published, "
                     f"{result['consumed_per_s']:,.0f}/s consumed")
    lines.append(f"  p99 is {results['p99 ratio']:.1f} times the undisturbed one; bar {WORSE:.0f}; "
                 f"ok: {'yes' if results['ok'] else 'no'}")
    return "\n".join(lines)
