"""Files that anyone may have written: no decoder crashes, hangs, takes unbounded memory or raises an undocumented error.

Each process decodes cases with consecutive numbers; NSQC_TEST_ENDS=all, as in `make asan`, decodes ten times as many. To
repeat case N of logs: python -m tests.hostile.run logs N 1.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = {"logs": 400, "queues": 400, "spark": 200}     # cases
FIRST = int(os.environ.get("NSQC_TEST_FUZZ_SEED", "0"))
TIMES = 10 if os.environ.get("NSQC_TEST_ENDS") == "all" else 1
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", TARGETS)
def test_hostile_files(target):
    done = subprocess.run([sys.executable, "-m", "tests.hostile.run", target, str(FIRST), str(TARGETS[target] * TIMES)],
                          cwd=ROOT, capture_output=True, text=True)
    last = done.stdout.split()[-1:] or ["none"]
    assert done.returncode == 0, f"case {last[0]} of {target}: status {done.returncode}\n{done.stderr[-4000:]}"
