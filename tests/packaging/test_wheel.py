"""The sdist is complete; the wheel, built from it, installs and works without a compiler."""

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

from nsqc import __version__, version_line
from tests.packaging.conftest import DIST, ROOT, built
from tests.support.patience import WAIT_SECONDS


def environment(folder: Path, extra: str = "") -> Path:
    """bin/ of a new environment with the wheel installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wheel = native()
    done = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:",
                           "--disable-pip-version-check", f"{wheel}{extra}"], capture_output=True, text=True,
                          env={**os.environ, "CC": "/bin/false", "CXX": "/bin/false"})
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def slim(tmp_path_factory) -> Path:
    """Without extras."""
    return environment(tmp_path_factory.mktemp("slim"))


@pytest.fixture(scope="module")
def installed(slim) -> Path:
    """The same with the extra `tools`; after the tests of `slim`."""
    subprocess.run([slim / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "typer>=0.28"], check=True)
    return slim


def call(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=WAIT_SECONDS, **more)


def test_it_brings_what_client_and_daemon_need(slim, daemon, tmp_path):
    told = json.loads(call(slim / "python", "-m", "pip", "list", "--format=json").stdout)
    assert {one["name"].lower() for one in told} - {"pip", "setuptools", "wheel"} == {
        "nsqc", "uvloop", "msgspec", "httptools", "cramjam", "google-re2", "isal"}
    node = daemon(command=(str(slim / "nsqc"), "serve"), cwd=tmp_path, data_path=tmp_path / "data")
    client = ("from nsqc.client import Producer\n"
              f"with Producer('127.0.0.1:{node.tcp_port}') as producer: producer.publish('t', b'x')")
    assert call(slim / "python", "-c", client, cwd=tmp_path).returncode == 0
    assert node.stats("t")["depth"] == 1
    for words in (["--version"], ["serve", "--help"], ["lookupd", "--help"], ["admin", "--help"]):
        done = call(slim / "nsqc", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert node.stop() == 0


@pytest.mark.parametrize("words", [["tail", "--help"], ["config", "init"], ["access"], ["log"], ["spark"], ["man"], ["completion", "bash"]])
def test_a_command_names_the_extra_it_needs(slim, tmp_path, words):
    done = call(slim / "nsqc", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nsqc {words[0]}: needs the Python package typer: pip install 'nsqc[tools]'")


def test_a_checkout_does_not_hide_an_installed_package(slim, tmp_path):
    """Python started in a source tree would import from there, where nothing is compiled."""
    with tarfile.open(built(DIST / f"nsqc-{__version__}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / f"nsqc-{__version__}"
    assert call(slim / "python", "-m", "nsqc", "--version", cwd=tree).returncode == 0
    done = call(slim / "python", "-S", "-m", "nsqc", "--version", cwd=tree)       # without installed packages
    assert done.returncode == 1
    assert f"nsqc is imported from the source checkout {tree}, which is not compiled for Python" in done.stderr
    assert call(slim / "nsqc", "--version", cwd=tree).returncode == 0
    assert call(slim / "python", "-P", "-m", "nsqc", "--version", cwd=tree).returncode == 0


def test_a_compiled_checkout_is_imported_and_shown(slim, tmp_path):
    """Python started in a compiled tree uses that tree; the version shows which of the two runs."""
    checkout = f"nsqc {__version__} (compatible with NSQ 1.3.0, Python {platform.python_version()}, source checkout {ROOT})\n"
    assert call(slim / "python", "-m", "nsqc", "--version", cwd=ROOT).stdout == checkout
    for words in ((slim / "nsqc",), (slim / "python", "-P", "-m", "nsqc")):
        assert call(*words, "--version", cwd=ROOT).stdout == checkout.replace(f", source checkout {ROOT}", "")


def test_the_installed_wheel(installed, daemon, tmp_path):
    for words, told in ((["--version"], f"nsqc {__version__} (compatible with NSQ 1.3.0, Python {platform.python_version()})"),
                        (["serve", "--version"], version_line("nsqd"))):
        assert call(installed / "nsqc", *words).stdout.strip() == told
    # In another directory, because the source tree would be imported.
    node = daemon(command=(str(installed / "nsqc"), "serve"), cwd=tmp_path, data_path=tmp_path / "data")
    taker = node.connect().sub("t", "c", 1)
    node.post("/pub?topic=t", b"x")
    assert taker.message().body == b"x"
    assert node.stop() == 0
    done = call(installed / "nsqc", "config", "init", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_extras_of_the_wheel():
    wheel = next(DIST.glob(f"nsqc-{__version__}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        told = archive.read(f"nsqc-{__version__}.dist-info/METADATA").decode()
    assert {"tools", "spark", "archive"} <= set(re.findall(r"^Provides-Extra: (\S+)$", told, re.MULTILINE))


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


def native() -> Path:
    """The wheel for this Python on this machine."""
    wheel, = DIST.glob(f"nsqc-{__version__}-cp{sys.version_info[0]}{sys.version_info[1]}-*{platform.machine()}.whl")
    return wheel


@pytest.mark.old_systems
def test_the_wheel_is_for_older_systems():
    wheel = native()
    promised = f"manylinux_2_28_{platform.machine()}"
    assert wheel.name.endswith(f"-{promised}.whl")
    told = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", wheel], check=True, capture_output=True, text=True)
    found = re.fullmatch(r"manylinux_2_(\d+)_.+", json.loads(told.stdout)["overall_tag"])
    assert found and int(found[1]) <= 28


@pytest.mark.parametrize("wheel", sorted(DIST.glob(f"nsqc-{__version__}-*.whl")), ids=lambda wheel: wheel.name.split("-", 2)[2])
def test_each_wheel_is_whole(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert sources(".py", ".pxd") | types() | page() <= inside
    compiled = {name.split(".", 1)[0] for name in inside if name.endswith(".so")}
    assert compiled == {name.removesuffix(".pyx") for name in sources(".pyx")}
    assert f"nsqc-{__version__}.dist-info/licenses/LICENSE" in inside
    # Spark finds a format by a package name that begins with pyspark_.
    assert {name.split("/")[0] for name in inside} == {"nsqc", f"nsqc-{__version__}.dist-info", "pyspark_nsq",
                                                       "pyspark_nsq_diskqueue"}
