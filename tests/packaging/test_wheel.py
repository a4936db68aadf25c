"""The sdist is complete; the wheel, which is built from it, installs and works without a compiler."""

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from nsqc import __version__, own_version, version_line
from tests.packaging.conftest import DIST, ROOT, built


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """bin/ of an environment with the wheel installed."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wheel, = DIST.glob(f"nsqc-{__version__}-*.whl")
    done = subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--only-binary=:all:",
                           "--disable-pip-version-check", wheel], capture_output=True, text=True,
                          env={**os.environ, "CC": "/bin/false", "CXX": "/bin/false"})
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_the_installed_wheel(installed, daemon, tmp_path):
    for words, told in ((["--version"], own_version()), (["serve", "--version"], version_line("nsqd"))):
        assert subprocess.run([installed / "nsqc", *words], capture_output=True, text=True).stdout.strip() == told
    # In another directory, or the source tree would be imported.
    node = daemon(command=(str(installed / "nsqc"), "serve"), cwd=tmp_path, data_path=tmp_path / "data")
    taker = node.connect().sub("t", "c", 1)
    node.post("/pub?topic=t", b"x")
    assert taker.message().body == b"x"
    assert node.stop() == 0
    done = subprocess.run([installed / "nsqc", "config", "init"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def sources(*suffixes: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "nsqc").rglob("*") if path.suffix in suffixes}


def page() -> set[str]:
    """The files of the admin page."""
    return {str(path.relative_to(ROOT)) for path in (ROOT / "nsqc/admin/page").iterdir()}


def types() -> set[str]:
    """Files for type checkers: stubs and py.typed."""
    return sources(".pyi") | {str(path.relative_to(ROOT)) for path in (ROOT / "nsqc").rglob("py.typed")}


def test_the_sdist_is_whole():
    with tarfile.open(built(DIST / f"nsqc-{__version__}.tar.gz")) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = sources(".py", ".pyx", ".pxd") | types() | {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    assert wanted | page() <= inside
    assert not {name for name in inside - page() if name.endswith((".so", ".c", ".html"))}, "nothing that was built is in it"


@pytest.mark.old_systems
def test_the_wheel_is_for_older_systems():
    wheel, = DIST.glob(f"nsqc-{__version__}-*.whl")
    promised = f"manylinux_2_28_{platform.machine()}"
    assert wheel.name.endswith(f"-{promised}.whl")
    told = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", wheel], check=True, capture_output=True, text=True)
    found = re.fullmatch(r"manylinux_2_(\d+)_.+", json.loads(told.stdout)["overall_tag"])
    assert found and int(found[1]) <= 28


def test_the_wheel_is_whole():
    wheel, = DIST.glob(f"nsqc-{__version__}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert sources(".py", ".pxd") | types() | page() <= inside
    compiled = {name.split(".", 1)[0] for name in inside if name.endswith(".so")}
    assert compiled == {name.removesuffix(".pyx") for name in sources(".pyx")}
    assert f"nsqc-{__version__}.dist-info/licenses/LICENSE" in inside
    # Spark finds a format by a package name that begins with pyspark_.
    assert {name.split("/")[0] for name in inside} == {"nsqc", f"nsqc-{__version__}.dist-info", "pyspark_nsq",
                                                       "pyspark_nsq_diskqueue"}
