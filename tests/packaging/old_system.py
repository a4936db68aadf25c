"""An older Debian in a folder, which `make old-test` downloads, and commands inside."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import WAIT_SECONDS

ROOT = Path(os.environ.get("NSQC_TEST_OLD_ROOT", "/nonexistent"))
needed = pytest.mark.skipif("NSQC_TEST_OLD_ROOT" not in os.environ, reason="NSQC_TEST_OLD_ROOT is set by `make old-test`")
# /proc is mounted for this process only, and unmounted with it.
INSIDE = ("unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', str(ROOT))
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def run(*words: str) -> subprocess.CompletedProcess:
    """Runs a command to its end."""
    return subprocess.run([*INSIDE, *words], capture_output=True, text=True, timeout=10 * WAIT_SECONDS, env=ENVIRONMENT)


def inside(*words: str) -> str:
    """The output of a command, which must succeed."""
    done = run(*words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout
