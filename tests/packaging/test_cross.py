"""Wheels for other CPythons and processors: whole, and run by their own interpreter, under emulation if need be.

`make dist` builds them. `make long-test` runs them: it fetches interpreters from Debian, and needs qemu-user for ARM.
"""

import base64
import csv
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nsqc import __version__
from tests.packaging.conftest import DIST, ROOT
from tests.support.patience import WAIT_SECONDS

sys.path.insert(0, str(ROOT / "packaging"))

import cross

WHEELS = sorted(DIST.glob(f"nsqc-{__version__}-*-manylinux*.whl"))
MACHINES = {"x86_64": 62, "aarch64": 183}       # in the heads of ELF files
NAME = re.compile(r"nsqc-.+-cp(3)(\d+)-cp3\d+-manylinux_2_28_(\w+)\.whl")
pytestmark = pytest.mark.skipif(not WHEELS, reason="there are no such wheels: make dist")
# The libraries that a Debian Python needs; names that a release lacks are skipped.
NEEDED = ("python{0}-minimal", "libpython{0}-minimal", "libpython{0}-stdlib", "libc6", "libgcc-s1", "libstdc++6", "zlib1g",
          "libffi8", "libexpat1", "liblzma5", "libbz2-1.0", "libuuid1")
OPENSSL = {"bookworm": ("libssl3", "libcrypt1"), "trixie": ("libssl3t64", "libzstd1"), "forky": ("libssl3t64", "libzstd1")}
ALL = """
import importlib, pkgutil, platform, sys, nsqc
OPTIONAL = ("typer", "pytest", "prometheus_client", "opentelemetry", "pyspark", "pyarrow", "numpy", "pandas", "py4j")
compiled = 0
for module in pkgutil.walk_packages(nsqc.__path__, "nsqc."):
    if "__main__" in module.name or module.name.startswith(("nsqc.testing", "nsqc.spark.jobs")):
        continue
    try:
        found = importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in OPTIONAL:
            raise
        continue
    compiled += (found.__file__ or "").endswith(".so")
print(platform.machine(), "%d.%d" % sys.version_info[:2], compiled)
"""


def target_of(wheel: Path) -> cross.Target:
    major, minor, machine = NAME.fullmatch(wheel.name).groups()
    return cross.Target(f"{major}.{minor}", machine)


@pytest.fixture(params=WHEELS, ids=lambda wheel: "-".join(target_of(wheel)))
def wheel(request):
    return request.param


def test_it_is_whole(wheel):
    target = target_of(wheel)
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}      # folders
    info = f"nsqc-{__version__}.dist-info"
    assert f"Tag: {target.tag}-{target.tag}-{target.platform}\n" in content[f"{info}/WHEEL"].decode()
    modules = {name: data for name, data in content.items() if name.endswith(".so")}
    assert len(modules) == len(list((ROOT / "nsqc").rglob("*.pyx")))
    for name, data in modules.items():
        assert name.endswith(target.suffix)
        assert int.from_bytes(data[18:20], "little") == MACHINES[target.machine], name
    listed = {name: digest for name, digest, _ in csv.reader(io.StringIO(content[f"{info}/RECORD"].decode()))}
    assert listed.keys() == content.keys()
    for name, data in content.items():
        wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert listed[name] in (f"sha256={wanted}", "") and (listed[name] or name.endswith("RECORD"))


def interpreter(target: cross.Target, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of this Python, and its environment: this machine's, or Debian's in a folder."""
    if target.machine == platform.machine() and (found := cross.here(target.python)):
        return (str(found[0]),), {}
    suite = cross.SUITES[target.python]
    names = [name.format(target.python) for name in NEEDED] + list(OPENSSL[suite])
    cross.fetch(names, suite, cross.ARCHITECTURES[target.machine], root)
    for name in ("lib", "lib64"):       # which newer releases have below usr
        if not (root / name).exists() and (root / "usr" / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    python = str(root / "usr/bin" / f"python{target.python}")
    if target.machine != platform.machine():
        if shutil.which("qemu-aarch64") is None:
            pytest.skip("qemu-aarch64 is not here (apt-get install qemu-user)")
        return ("qemu-aarch64", "-L", str(root), python), {}
    libraries = f"{root}/usr/lib/{target.machine}-linux-gnu:{root}/lib/{target.machine}-linux-gnu"
    loader, = root.glob("lib64/ld-linux-*.so.*")
    return (str(loader), "--library-path", libraries, python), {"PYTHONHOME": str(root / "usr")}


@pytest.mark.long
def test_it_runs(wheel, tmp_path, daemon):
    """Every module is imported, and a message goes through a daemon."""
    target = target_of(wheel)
    packages = tmp_path / "packages"
    platforms = [f"{name}_{target.machine}" for name in ("manylinux_2_28", "manylinux2014", "manylinux_2_17")]
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", packages,
                           "--implementation", "cp", "--python-version", target.python, "--abi", target.tag,
                           *(word for name in platforms for word in ("--platform", name)), wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    python, more = interpreter(target, tmp_path / "root")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run([*python, "-c", ALL], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=10 * WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    machine, version, compiled = done.stdout.split()
    assert (machine, version) == (target.machine, target.python) and int(compiled) > 100
    node = daemon(command=(*python, "-m", "nsqc", "serve"), data_path=tmp_path / "data", env=environment, cwd=tmp_path)
    node.connect().pub("t", b"x")
    assert node.connect().sub("t", "c", 1).message().body == b"x"
    assert node.stop() == 0
