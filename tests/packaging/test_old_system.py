"""Executable and Debian package in an older Debian, which `make old-test` downloads."""

import re
import shutil

import pytest

from nsqc import __version__
from tests.packaging import old_system
from tests.packaging.conftest import DIST, built
from tests.packaging.old_system import INSIDE, ROOT, inside

pytestmark = old_system.needed


@pytest.fixture(params=["file", "package"])
def executable(request):
    """The path of the executable inside."""
    if request.param == "file":
        shutil.copy(built(DIST / "nsqc"), ROOT / "nsqc")
        yield "/nsqc"
        return
    package, = DIST.glob(f"nsqc_{__version__}_*.deb")
    shutil.copy(package, ROOT / "nsqc.deb")
    inside("dpkg", "--install", "/nsqc.deb")
    yield "/usr/bin/nsqc"
    inside("dpkg", "--purge", "nsqc")
    assert not (ROOT / "usr/lib/nsqc").exists() and not (ROOT / "etc/nsqc").exists()


def test_it_is_older():
    major, minor = re.search(r"(\d+)\.(\d+)$", inside("ldd", "--version").splitlines()[0]).groups()
    assert (2, 28) <= (int(major), int(minor)) < (2, 36)


def test_a_message_and_a_restart(daemon, executable, tmp_path):
    data = tmp_path / "data"
    (ROOT / data.relative_to("/")).mkdir(parents=True)
    node = daemon(command=(*INSIDE, executable, "serve"), data_path=data)
    assert node.http("GET", "/ping") == (200, b"OK")
    node.connect().pub("t", b"x")
    node.restart()
    taker = node.connect().sub("t", "c", 1)
    assert taker.message().body == b"x"
    assert node.stop() == 0
