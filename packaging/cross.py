"""Builds wheels for other CPythons, and for 64-bit ARM, from the wheel in dist/: only its modules are recompiled.

    python packaging/cross.py                       all targets
    python packaging/cross.py 3.13-x86_64 3.11-aarch64

Cython's C is the same for every CPython, and Zig targets other processors, so a target needs only the headers of its
Python: from one on this machine, or from a Debian package, which need not be installed. A target without available
headers is reported and skipped.
"""

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from compiler import GLIBC, environment
from glibc import least

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
HOME = ROOT / "build" / "cross"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org")
# Debian releases by Python version; None: no release on the mirrors has it.
SUITES = {"3.11": "bookworm", "3.12": None, "3.13": "trixie", "3.14": "forky"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FIXED = (1980, 1, 1, 0, 0, 0)       # the earliest time in a zip file


class Failed(Exception):
    """Why a target is skipped; the text is one line."""


class Target(NamedTuple):
    """python: such as 3.13; machine: such as aarch64."""

    python: str
    machine: str

    @property
    def tag(self) -> str:
        return f"cp{self.python.replace('.', '')}"

    @property
    def platform(self) -> str:
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"

    @property
    def suffix(self) -> str:
        """Suffix of its modules."""
        return f".cpython-{self.python.replace('.', '')}-{self.machine}-linux-gnu.so"

    @property
    def folder(self) -> Path:
        return HOME / f"{self.python}-{self.machine}"


ALL = [Target(python, machine) for machine in ARCHITECTURES for python in SUITES]


# ---------------------------------------------------------------------- headers


def here(version: str) -> tuple[Path, Path] | None:
    """A Python of this version on this machine, and the folder of its headers."""
    named = shutil.which(f"python{version}")
    code = "import sys, sysconfig; print(sys.executable, '%d.%d' % sys.version_info[:2], sysconfig.get_path('include'))"
    for python in [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"), *filter(None, [named])]:
        # A name such as python3.13 may be a version switch, which fails if this one is not selected.
        words = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.split()
        if len(words) == 3 and words[1] == version:
            return Path(words[0]), Path(words[2])
    return None


def headers(target: Target) -> list[Path]:
    """The folders to include. Raises Failed."""
    if target.machine == platform.machine():
        found = here(target.python)
        if found and (found[1] / "Python.h").exists():
            return [found[1]]
    suite = SUITES[target.python]
    if suite is None:
        raise Failed(f"no headers: Python {target.python} is not here, and no release of Debian has it")
    root = target.folder / "headers"
    folder = root / "usr" / "include"
    if not (folder / f"python{target.python}" / "Python.h").exists():
        fetch([f"libpython{target.python}-dev"], suite, ARCHITECTURES[target.machine], root)
    # Debian's pyconfig.h selects between its processors, by a path below usr/include.
    return [folder / f"python{target.python}", folder]


def fetch(packages: list[str], suite: str, architecture: str, root: Path) -> None:
    """Unpacks Debian packages into a folder, by apt with its own lists. Raises Failed."""
    state = HOME / "apt" / f"{suite}-{architecture}"
    for folder in ("lists/partial", "cache/archives/partial", "files"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(
        f"deb [signed-by={KEYRING} arch={architecture}] {MIRROR}/debian {suite} main\n")
    options = {"Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
               "Dir::State": state, "Dir::State::status": "/dev/null", "Dir::Cache": state / "cache",
               "APT::Sandbox::User": "root",
               "APT::Architecture": architecture, "APT::Architectures": architecture}
    apt = ["apt-get", "--quiet", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update", "--error-on=any"], f"the lists of Debian {suite}")
    for old in (state / "files").glob("*.deb"):
        old.unlink()
    run([*apt, "download", *packages], f"{packages[0]} of Debian {suite}", state / "files")
    root.mkdir(parents=True, exist_ok=True)
    for archive in sorted((state / "files").glob("*.deb")):
        run(["dpkg-deb", "-x", archive, root], f"{archive.name} of Debian {suite}")


def run(words: list, what: str, folder: Path = ROOT, **variables: str) -> None:
    """Runs a step, silently on success. Raises Failed."""
    done = subprocess.run(list(map(str, words)), cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        log = HOME / "failed.log"
        log.write_text(done.stdout)
        last = done.stdout.strip().splitlines()[-1:] or ["it says nothing"]
        raise Failed(f"{what}: {last[0]} (all of it is in {log.relative_to(ROOT)})")


# ---------------------------------------------------------------------- wheels


def build(target: Target, base: Path) -> Path:
    """Compiles the modules and packs them with the rest of the base wheel. Returns the new wheel. Raises Failed."""
    include = os.pathsep.join(map(str, headers(target)))
    tools = environment(HOME / f"zig-{target.machine}", target.machine)
    modules = target.folder / "modules"
    # Debug symbols would be 80 % of it.
    run([sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", modules,
         "--build-temp", target.folder / "temp"], f"the modules for {target.python} on {target.machine}", **tools,
        LDSHARED=f"{tools['CC']} -shared -Wl,-s", NSQC_INCLUDE=include, NSQC_SUFFIX=target.suffix,
        NSQC_TRANSLATED=str(ROOT / "build" / "translated"))
    highest, names = least(modules)
    if highest > GLIBC:
        raise Failed(f"{names[0]} needs glibc {highest[0]}.{highest[1]}")
    return pack(target, base, modules)


def pack(target: Target, base: Path, modules: Path) -> Path:
    """The wheel."""
    version = base.name.split("-")[1]
    info = f"nsqc-{version}.dist-info"
    content: dict[str, bytes] = {}
    with zipfile.ZipFile(base) as archive:
        for name in archive.namelist():
            if not name.endswith((".so", "/", f"{info}/RECORD")):
                content[name] = archive.read(name)
    described = content[f"{info}/WHEEL"].decode()
    content[f"{info}/WHEEL"] = re.sub(r"^Tag: .*$", f"Tag: {target.tag}-{target.tag}-{target.platform}", described,
                                      flags=re.MULTILINE).encode()
    for path in modules.rglob(f"*{target.suffix}"):
        content[str(path.relative_to(modules))] = path.read_bytes()
    content[f"{info}/RECORD"] = record(content, f"{info}/RECORD").encode()
    wheel = base.with_name(f"nsqc-{version}-{target.tag}-{target.tag}-{target.platform}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(content.items()):
            entry = zipfile.ZipInfo(name, FIXED)
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


def record(content: dict[str, bytes], name: str) -> str:
    """The wheel's list of files with their hashes."""
    lines = []
    for path, data in sorted(content.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{name},,", ""])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="PYTHON-MACHINE", help="by default all")
    arguments = parser.parse_args()
    chosen = [Target(*text.split("-")) for text in arguments.targets] or ALL
    HOME.mkdir(parents=True, exist_ok=True)
    base, = DIST.glob("nsqc-*-cp311-cp311-*x86_64.whl")
    for target in chosen:
        if not arguments.targets and f"-{target.tag}-" in base.name and target.machine in base.name:
            continue        # the base wheel itself
        try:
            print(build(target, base), flush=True)
        except Failed as error:
            if arguments.targets:
                raise SystemExit(f"no wheel for {target.python} on {target.machine}: {error}") from None
            print(f"no wheel for {target.python} on {target.machine}: {error}", flush=True)


if __name__ == "__main__":
    main()
