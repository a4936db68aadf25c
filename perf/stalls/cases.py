"""The cases: large, permitted operations that must not block other clients."""

from __future__ import annotations

import contextlib
import json
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from perf.load.work import ClientError
from perf.stalls.stage import Stage, frame

BODY_LIMIT = 5 << 20            # --max-body-size
IN_MEMORY = "--mem-queue-size=2500000"
MANY_READY = "--max-rdy-count=2000000"
CATCHES_UP = 1.5                # most backlog at the end, as a multiple of that at the start


@dataclass(frozen=True)
class Case:
    """One row of the table. run prepares the case and runs the measured part within stage.watched()."""

    name: str
    title: str
    run: Callable[[Stage], None]
    flags: tuple[str, ...] = ()
    files: Callable[[float], dict[str, bytes]] | None = None    # in the data path at the start, by the scale's count


CASES: dict[str, Case] = {}


def case(name: str, title: str, *flags: str,
         files: Callable[[float], dict[str, bytes]] | None = None) -> Callable[[Callable[[Stage], None]], None]:
    """Registers a function as a case."""
    def enter(run: Callable[[Stage], None]) -> None:
        CASES[name] = Case(name, title, run, flags, files)
    return enter


# ---------------------------------------------------------------------- publishing

@case("quiet", "nothing")
def quiet(stage: Stage) -> None:
    """The machine's own effect on the results."""
    with stage.watched():
        time.sleep(stage.seconds(3))


@case("tiny", "1 PUB flood of 1-byte bodies")
def tiny(stage: Stage) -> None:
    stage.body = 1
    stage.server.channel("load", "ch")
    with stage.watched():
        done = stage.client("flood", "-c", 1, "-t", stage.seconds(3), "-s", stage.body).end()
    stage.note(f"{done['per_s']:,.0f}/s")


@case("large", "2 PUB floods of 64 KB bodies")
def large(stage: Stage) -> None:
    stage.body = 65536
    stage.server.channel("load", "ch")
    with stage.watched():
        done = stage.client("pub", "-c", 2, "-b", 1, "-w", 64, "-s", 65536, "-t", stage.seconds(3), "-n",
                            stage.count(20_000)).end()
    stage.note(f"{done['per_s']:,.0f}/s")


def tiny_batch(limit: float) -> tuple[bytes, int]:
    """The body of an MPUB of at most `limit` bytes, of one-byte messages, and their number."""
    count = (int(limit) - 4) // 5
    return struct.pack(">i", count) + struct.pack(">i1s", 1, b"x") * count, count


@case("mpub-20", "one 5 MB MPUB of 1-byte messages to 20 channels")
def mpub_20(stage: Stage) -> None:
    stage.body = 1
    stage.server.channel("load", *(f"c{at}" for at in range(20)))
    body, count = tiny_batch(BODY_LIMIT * stage.scale.count)
    with stage.watched():
        multi_publish(stage, body)
        stage.drained()
    stage.note(f"{count:,} messages")


def multi_publish(stage: Stage, body: bytes) -> None:
    """Publishes over TCP; returns at the answer."""
    with stage.connect() as sock:
        began = time.monotonic()
        sock.sendall(b"MPUB load\n" + struct.pack(">i", len(body)) + body)
        if (answer := frame(sock)) != b"OK":
            raise ClientError(f"MPUB: {answer!r}")
        stage.note(f"OK after {time.monotonic() - began:.2f} s")


@case("http-mpub-20", "one 5 MB HTTP /mpub of 1-byte messages to 20 channels")
def http_mpub_20(stage: Stage) -> None:
    stage.body = 1
    stage.server.channel("load", *(f"c{at}" for at in range(20)))
    body = b"x\n" * (int(BODY_LIMIT * stage.scale.count) // 2)
    with stage.watched():
        stage.note(f"OK after {stage.timed_call('POST', '/mpub?topic=load', body):.2f} s")
        stage.drained()
    stage.note(f"{len(body) // 2:,} messages")


@case("mpub-1000", "MPUB of 10,000 messages of 100 bytes to 1,000 channels")
def mpub_1000(stage: Stage) -> None:
    stage.body = 100
    stage.server.channel("load", *(f"c{at}" for at in range(stage.count(1000))))
    with stage.watched():
        multi_publish(stage, struct.pack(">i", 10_000) + struct.pack(">i100s", 100, b"x" * 100) * 10_000)
        stage.drained()


# ---------------------------------------------------------------------- topics that drain

@case("drain", "2 million messages drained to a first channel")
def drain(stage: Stage) -> None:
    stage.server.post("/topic/create?topic=load")
    stage.publish(stage.count(2_000_000))
    with stage.watched():
        stage.server.post("/channel/create?topic=load&channel=ch")
        stage.drained()


@case("channels", "40 channels created while 1 million messages drain")
def channels(stage: Stage) -> None:
    stage.server.post("/topic/create?topic=load")
    stage.publish(stage.count(1_000_000))
    with stage.watched():
        took = [stage.timed_call("POST", f"/channel/create?topic=load&channel=c{at}") for at in range(40)]
        stage.drained()
    stage.note(f"a create took {max(took) * 1000:.0f} ms at most")


def catch_up(stage: Stage, begin: str) -> None:
    """A topic with a backlog begins to drain under full load: it must catch up."""
    stage.publish(stage.count(1_000_000))
    start = most = stage.stats("load")["depth"]
    with stage.watched():
        load = stage.client("flood", "-c", 4, "-t", stage.seconds(5), "-s", stage.body)
        stage.server.post(begin)
        while load.process.poll() is None:
            most = max(most, stage.stats("load")["depth"])
            time.sleep(0.25)
        done = load.end()
        end = stage.stats("load")["depth"]
    stage.note(f"depth {start:,} to {end:,}, at most {max(most, end):,}, {done['per_s']:,.0f}/s published")
    stage.result.own_bar_held = end <= CATCHES_UP * start


@case("catch-up-paused", "a topic that was paused catches up under full load")
def catch_up_paused(stage: Stage) -> None:
    stage.server.channel("load", "ch")
    stage.server.post("/topic/pause?topic=load")
    catch_up(stage, "/topic/unpause?topic=load")


@case("catch-up-new", "a topic that gets its first channel catches up under full load")
def catch_up_new(stage: Stage) -> None:
    stage.server.post("/topic/create?topic=load")
    catch_up(stage, "/channel/create?topic=load&channel=ch")


# ---------------------------------------------------------------------- consumers

def fins(stage: Stage, connections: int) -> None:
    with stage.watched():
        done = stage.client("fins", "-c", connections, "-t", stage.seconds(3), "-T", "strange").end()
    stage.note(f"{done['sent']:,} sent")


@case("fins-1", "1 client sends FINs of unknown ids")
def fins_1(stage: Stage) -> None:
    fins(stage, 1)


@case("fins-4", "4 clients send FINs of unknown ids")
def fins_4(stage: Stage) -> None:
    fins(stage, 4)


def in_flight(stage: Stage) -> int:
    """Publishes the messages that a client then keeps in flight; returns their number."""
    stage.server.channel("load", "ch")
    count = stage.count(1_000_000)
    stage.publish(count)
    return count


def timeouts(stage: Stage) -> None:
    count = in_flight(stage)
    stage.hold(count)
    with stage.watched():
        until = time.monotonic() + stage.seconds(20)
        while stage.stats("load")["channels"][0]["timeout_count"] < count and time.monotonic() < until:
            time.sleep(0.25)
    stage.note(f"{stage.stats('load')['channels'][0]['timeout_count']:,} timed out")


def close(stage: Stage) -> None:
    holder = stage.hold(in_flight(stage))
    with stage.watched():
        holder.end()
        time.sleep(stage.seconds(3))


for _where, _flags in (("memory", (IN_MEMORY,)), ("disk", ())):
    case(f"timeouts-{_where}", f"1 million messages from {_where} in flight time out", *_flags, MANY_READY,
         "--msg-timeout=8s")(timeouts)
    case(f"close-{_where}", f"a connection with 1 million messages from {_where} in flight closes", *_flags,
         MANY_READY)(close)


@case("idle", "10,000 idle connections with heartbeats of 1 s")
def idle(stage: Stage) -> None:
    stage.healthy = stage.count(10_000)
    stage.topics = []
    with stage.watched():
        time.sleep(stage.seconds(6))


@case("deflate", "a deflate bomb: 4 GB of NOPs in 4 MB")
def deflate(stage: Stage) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(b"NOP\n" * (1 << 18)) + packer.flush(zlib.Z_FULL_FLUSH)
    about = json.dumps({"feature_negotiation": True, "deflate": True, "deflate_level": 6}).encode()
    with stage.connect() as sock:
        sock.sendall(b"IDENTIFY\n" + struct.pack(">i", len(about)) + about)
        frame(sock)
        sent = 0
        with stage.watched(), contextlib.suppress(TimeoutError):
            until = time.monotonic() + stage.seconds(4)
            sock.settimeout(stage.seconds(4))
            while time.monotonic() < until and sent < 4096:
                sock.sendall(piece)
                sent += 1
    stage.note(f"{sent} MB of them taken")


# ---------------------------------------------------------------------- administration

@case("delete", "a topic of 1,000 disk channels is deleted", "--mem-queue-size=0")
def delete(stage: Stage) -> None:
    stage.body = 100
    stage.server.channel("load", *(f"c{at}" for at in range(stage.count(1000))))
    stage.publish(stage.count(200))
    stage.drained(seconds=30)
    with stage.watched():
        stage.note(f"answered after {stage.timed_call('POST', '/topic/delete?topic=load'):.2f} s")
        time.sleep(stage.seconds(2))


@case("empty", "a channel of 2 million messages in memory is emptied", IN_MEMORY)
def empty(stage: Stage) -> None:
    stage.server.channel("load", "ch")
    stage.publish(stage.count(2_000_000))
    with stage.watched():
        stage.note(f"answered after {stage.timed_call('POST', '/channel/empty?topic=load&channel=ch'):.2f} s")
        time.sleep(stage.seconds(2))


def many_topics(share: float) -> dict[str, bytes]:
    """An nsqd.dat of 20,000 topics with a channel each."""
    topics = [{"name": f"t{at}", "paused": False, "channels": [{"name": "c", "paused": False}]}
              for at in range(max(10, int(20_000 * share)))]
    return {"nsqd.dat": json.dumps({"topics": topics, "version": "1.3.0"}).encode()}


@case("stats", "/stats of 20,000 topics, three times", files=many_topics)
def stats(stage: Stage) -> None:
    stage.topics = []
    with stage.watched():
        for path in ("/stats?format=json", "/stats", "/stats?format=json&include_clients=false"):
            stage.note(f"{stage.timed_call('GET', path):.2f} s")
            time.sleep(stage.seconds(0.3))


@case("admin", "a topic is created, paused, deleted, 20 times beside 20,000", files=many_topics)
def admin(stage: Stage) -> None:
    stage.topics = []
    took = []
    with stage.watched():
        for at in range(20):
            took += [stage.timed_call("POST", f"/topic/{what}?topic=x{at}") for what in ("create", "pause", "delete")]
            time.sleep(stage.seconds(0.05))
    stage.note(f"a call took {max(took) * 1000:.0f} ms at most")
