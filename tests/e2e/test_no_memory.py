"""A daemon whose address space is limited while it runs: messages are refused or wait, none is lost."""

import re
import resource
from contextlib import suppress

import pytest

BODY = b"%08d" + b"x" * 300
ROOM = 24 << 20  # bytes that the daemon may add to its use when the limit is set


def limit(node, room: int | None) -> None:
    """Limits the daemon to `room` bytes more than it uses now; None: no limit."""
    most = resource.RLIM_INFINITY
    if room is not None:
        with open(f"/proc/{node.pid}/status") as file:
            most = int(re.search(r"VmSize:\s+(\d+)", file.read())[1]) * 1024 + room
    resource.prlimit(node.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def publish_until_refused(node) -> set[bytes]:
    """The numbers of the messages acknowledged before one batch was refused."""
    producer, accepted, number = node.connect(), set(), 0
    while number < 2_000_000:
        bodies = [BODY % n for n in range(number, number + 200)]
        producer.command("MPUB t", len(bodies).to_bytes(4, "big")
                         + b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
        answer = producer.frame()
        if answer != (0, b"OK"):
            assert answer is None or answer[1].startswith(b"E_MPUB_FAILED"), answer
            return accepted
        accepted |= {body[:8] for body in bodies}
        number += 200
    raise AssertionError("memory did not run out")


def take(consumer, wanted: set[bytes]) -> None:
    """Receives and finishes messages until all of these have arrived."""
    missing = set(wanted)
    while missing:
        message = consumer.message()
        missing.discard(message.body[:8])
        consumer.fin(message)


@pytest.mark.parametrize("queue", [0, 10**8], ids=["disk", "memory"])
def test_publishing(daemon, queue):
    node = daemon(f"--mem-queue-size={queue}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    if queue:
        limit(node, ROOM)
        accepted = publish_until_refused(node)
    else:
        limit(node, 1 << 20)    # too little for a batch of half a megabyte while it is written to disk
        producer = node.connect()
        accepted = set()
        for number in range(20):
            producer.command("MPUB t", (1500).to_bytes(4, "big") + b"".join(
                (308).to_bytes(4, "big") + BODY % n for n in range(1500 * number, 1500 * number + 1500)))
            if producer.frame() != (0, b"OK"):
                producer = node.connect()
                continue
            accepted |= {b"%08d" % n for n in range(1500 * number, 1500 * number + 1500)}
    limit(node, None)
    take(node.connect().sub("t", "c", 2500), accepted)


def test_delivering_to_a_client_that_receives_everything_and_finishes_nothing(daemon):
    """Slow: receives 200,000 messages one by one."""
    node = daemon("--mem-queue-size=10000000", "--max-rdy-count=10000000", "--msg-timeout=2s")
    producer, count = node.connect(), 200_000
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for number in range(0, count, 1000):
        producer.pub("t", *(BODY[:8] % n for n in range(number, number + 1000)))
    greedy = node.connect().sub("t", "c")
    limit(node, 2 << 20)
    greedy.command("RDY 10000000")
    seen = 0
    with suppress(TimeoutError, TypeError):    # nothing more arrives, or the connection has ended
        while seen < count:
            greedy.message(2)
            seen += 1
    assert seen < count, "memory did not run out"
    limit(node, None)
    greedy.close()
    take(node.connect().sub("t", "c", 2500), {b"%08d" % n for n in range(count)})
