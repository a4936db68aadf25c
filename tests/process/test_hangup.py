"""SIGHUP, in a separate process: the handler of the tests' process is not ours to change."""

import subprocess
import sys

import pytest

from tests.support.patience import WAIT_SECONDS

CODE = """
import asyncio, os, signal, sys
import uvloop
from nsqc.process.hangup import Hangup

async def main():
    signals = []
    hangup = Hangup(asyncio.get_running_loop())
    print("ignored" if hangup.ignored else "default")
    for moment in ("before", "running", "after"):
        if moment == "running":
            hangup.begin(lambda: signals.append(1))
            print(len(signals))
        if moment == "after":
            hangup.end()
        if moment in sys.argv[1:]:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
    print(len(signals))

uvloop.run(main())
"""


@pytest.mark.parametrize("moments,counts", [
    ((), ["0", "0"]),
    (("before",), ["1", "1"]),
    (("running",), ["0", "1"]),
    (("before", "running", "after"), ["1", "2"]),
])
def test_signals(moments, counts):
    done = subprocess.run([sys.executable, "-c", CODE, *moments], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.split() == ["default", *counts], done.stderr


def test_nohup():
    done = subprocess.run(["nohup", sys.executable, "-c", CODE, "running"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.split() == ["ignored", "0", "1"], done.stderr
