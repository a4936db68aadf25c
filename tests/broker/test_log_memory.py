"""Log-backed topics that run out of memory at any moment between a publish and its answer: refused messages are not
delivered, accepted ones are delivered once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf.programs import program
from tests.support.patience import WAIT_SECONDS

SHIM = Path(__file__).parent.parent / "support" / "nomemory.c"
SCRIPT = """
import ctypes, os, sys
from pathlib import Path
import msgspec
from nsqc.broker.topic import PENDING, OpenBatch
from tests.broker.harness import publish, run, until, written
from tests.compiled.taker import Taker

memory = ctypes.CDLL(os.environ["LD_PRELOAD"])
memory.nomemory_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long]
storage, sync, module = sys.argv[2:]
MOST = 40

async def in_batch(topic, *bodies):
    batch = OpenBatch.lines(b"\\n".join(bodies))
    failure = topic.publish_batch(batch)
    assert not batch.open
    return await written(topic) if failure == PENDING else failure

async def scenario(broker):
    topic = broker.get_topic(b"t")
    topic.start()
    accepted, refused = set(), set()
    for skip in range(MOST):
        for times in (1, 3):
            if sync == "turns":     # what was written without a sync is synced first
                topic.set_rule(msgspec.structs.replace(topic.rule, sync="write"))
                assert await publish(topic, b"before-%d-%d" % (skip, times)) == 0
                accepted.add(b"before-%d-%d" % (skip, times))
                topic.set_rule(msgspec.structs.replace(topic.rule, sync="fsync"))
            bodies = [b"%d-%d-%d" % (skip, times, part) + b"x" * 150 for part in range(4)]
            memory.nomemory_fail(module.encode(), skip, times)
            if storage == "log":
                sent = [(bodies[:1], publish(topic, bodies[0])), (bodies[1:], in_batch(topic, *bodies[1:]))]
            else:
                sent = [([body], publish(topic, body)) for body in bodies]      # of a batch a part may be accepted
            for some, answer in sent:
                (refused if await answer else accepted).update(some)
            failed = memory.nomemory_failed()
            memory.nomemory_fail(b"", 0, 0)
            good = b"good-%d-%d" % (skip, times)
            assert await publish(topic, good) == 0
            accepted.add(good)
        if not failed:
            break
    assert refused, "nothing has failed"
    assert not failed, "MOST is too small"
    assert topic.message_count == len(accepted), (topic.message_count, len(accepted))
    taker = Taker(10_000)
    channel = topic.get_channel(b"c")       # one in a disk queue keeps what it cannot write
    channel.pause()
    taker.subscribe(channel)
    channel.unpause()
    await until(lambda: len(taker.bodies) >= len(accepted))
    got = taker.bodies
    assert len(got) == len(set(got)), "twice"
    assert set(got) == accepted, (set(got) & refused, accepted - set(got))
    print(len(accepted), len(refused))

run(Path(sys.argv[1]), scenario, topic_storage=storage, log_sync="write" if sync == "turns" else sync, max_bytes_per_file=400, mem_queue_size=0)
"""


@pytest.mark.parametrize("storage,sync,module", [
    ("log", "write", "/log/topiclog."), ("log", "write", "/log/segment."), ("log", "turns", "/log/topiclog."),
    ("log", "fsync", "/log/topiclog."), ("log", "fsync", "/log/frame."), ("memory", "write", "/disk/queue.")])
def test_each_allocation_fails_once(tmp_path, storage, sync, module):
    shim = program("nomemory.so", [SHIM], "-shared", "-fPIC", "-ldl")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), storage, sync, module],
                          env={**os.environ, "LD_PRELOAD": str(shim)}, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
