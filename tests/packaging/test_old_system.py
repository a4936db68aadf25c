"""Executable and Debian package in an older Debian, which `make old-test` downloads."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nsqc import __version__
from tests.packaging.conftest import DIST, built
from tests.support.patience import WAIT_SECONDS

ROOT = os.environ.get("NSQC_TEST_OLD_ROOT")
pytestmark = pytest.mark.skipif(ROOT is None, reason="NSQC_TEST_OLD_ROOT is set by `make old-test`")
# /proc is mounted for this process only, and unmounted with it.
INSIDE = ("unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', ROOT)


def inside(*words: str) -> str:
    done = subprocess.run([*INSIDE, *words], capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(params=["file", "package"])
def executable(request):
    """The path of the executable inside."""
    if request.param == "file":
        shutil.copy(built(DIST / "nsqc"), Path(ROOT) / "nsqc")
        yield "/nsqc"
        return
    package, = DIST.glob(f"nsqc_{__version__}_*.deb")
    shutil.copy(package, Path(ROOT) / "nsqc.deb")
    inside("dpkg", "--install", "/nsqc.deb")
    yield "/usr/bin/nsqc"
    inside("dpkg", "--purge", "nsqc")
    assert not (Path(ROOT) / "usr/lib/nsqc").exists() and not (Path(ROOT) / "etc/nsqc").exists()


def test_it_is_older():
    major, minor = re.search(r"(\d+)\.(\d+)$", inside("ldd", "--version").splitlines()[0]).groups()
    assert (2, 28) <= (int(major), int(minor)) < (2, 36)


def test_a_message_and_a_restart(daemon, executable, tmp_path):
    data = tmp_path / "data"
    (Path(ROOT) / data.relative_to("/")).mkdir(parents=True)
    node = daemon(command=(*INSIDE, executable, "serve"), data_path=data)
    assert node.http("GET", "/ping") == (200, b"OK")
    node.connect().pub("t", b"x")
    node.restart()
    taker = node.connect().sub("t", "c", 1)
    assert taker.message().body == b"x"
    assert node.stop() == 0
