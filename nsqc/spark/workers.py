"""Checks whether the Python of Spark's workers can run nsqc. Imports no Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ANSWER_SECONDS = 60
# Imports of a worker. pyspark.daemon: of this process's Spark.
QUESTION = ("import sys, pyspark.daemon, pyarrow, pyspark_nsq, nsqc.spark.bodies, nsqc.store.log.block; "
            "print('%d.%d' % sys.version_info[:2])")


def is_this(python: str) -> bool:
    """Whether a worker's Python, a path or a name, is this process's, including packages."""
    path = shutil.which(python)
    return (path is not None and os.path.dirname(os.path.abspath(path)) == os.path.dirname(sys.executable)
            and os.path.samefile(path, sys.executable))


def missing(python: str) -> str | None:
    """Why workers cannot run with this Python; None: they can. Tests a process started as Spark starts workers: in the
    same folder, so with the same module path, and with Spark's own packages first."""
    try:
        answer = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True, timeout=ANSWER_SECONDS,
                                env={**os.environ, "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "YES"})
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode:
        return (answer.stderr.strip().splitlines() or ["it failed"])[-1]
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = answer.stdout.strip()
    return None if found == mine else f"it is Python {found}, but this is {mine}"


def python_path() -> str:
    """PYTHONPATH of workers."""
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(spec.origin) if spec is not None and spec.origin else "")
    packed = [str(path) for path in sorted(Path(home, "python", "lib").glob("*.zip"))] if home else []
    return os.pathsep.join([*packed, *filter(None, [os.environ.get("PYTHONPATH")])])
