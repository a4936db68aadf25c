"""SIGHUP, in a separate process: the handler of the tests' process is not ours to change."""

import subprocess
import sys

import pytest

from tests.support.patience import WAIT_SECONDS

CODE = """
import asyncio, os, signal, sys
import uvloop
from nsqc.process.running import Hangup

async def main():
    done = []
    hangup = Hangup(asyncio.get_running_loop())
    for moment in ("before", "running", "after"):
        if moment == "running":
            hangup.begin(lambda: done.append("stop"), (lambda: done.append("reload")) if "files" in sys.argv else None)
            print(done)
        if moment == "after":
            hangup.end()
        if moment in sys.argv[1:]:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
    print(done)

uvloop.run(main())
"""


@pytest.mark.parametrize("files, wanted", [((), "stop"), (("files",), "reload")])
@pytest.mark.parametrize("moments, begun, ended", [
    ((), 0, 0),
    (("before",), 1, 1),
    (("running",), 0, 1),
    (("before", "running", "after"), 1, 2),
])
def test_signals(moments, begun, ended, files, wanted):
    done = subprocess.run([sys.executable, "-c", CODE, *moments, *files], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.splitlines() == [str([wanted] * begun), str([wanted] * ended)], done.stderr


@pytest.mark.parametrize("files, wanted", [((), []), (("files",), ["reload"])])
def test_nohup(files, wanted):
    done = subprocess.run(["nohup", sys.executable, "-c", CODE, "running", *files], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.splitlines() == ["[]", str(wanted)], done.stderr
