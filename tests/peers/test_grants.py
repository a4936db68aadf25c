"""The meaning of an auth server's answer."""

import subprocess
import sys

from tests.support.patience import WAIT_SECONDS

THREADS = """
import gc, sys, threading
from nsqc.peers.auth import interpret

sys.setswitchinterval(1e-6)
gc.set_threshold(1)
gc.callbacks.append(lambda *_: None)    # in Python, so that threads change there
body = b'{"ttl": 1, "authorizations": [{"topic": ".*", "channels": [".*"], "permissions": ["subscribe"]}]}'
together = threading.Barrier(8)


def first():
    together.wait()
    for _ in range(20):
        interpret(body, False)


threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
PROCESSES = 8   # each decodes for the first time; one in three crashed


def test_the_first_answers_may_come_at_once():
    """Workers decode answers concurrently. msgspec crashed when two of them were the first to use a type."""
    for _ in range(PROCESSES):
        subprocess.run([sys.executable, "-c", THREADS], check=True, timeout=WAIT_SECONDS)
