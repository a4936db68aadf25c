"""The steps of a release other than building.

    python packaging/release.py check      refuses what must not be released
    python packaging/release.py collect    dist/release: executable, folder, wheel, sdist, Debian package, SHA256SUMS
"""

import argparse
import hashlib
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Refused(Exception):
    """Why a release is refused; the text is one line."""


def version_of_tree(root: Path) -> str:
    """The version, from its only place."""
    return re.search(r'^__version__ = "(.+)"$', (root / "nsqc" / "__init__.py").read_text(), re.MULTILINE)[1]


def check(root: Path, version: str) -> None:
    """Raises Refused."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True)
    if status.stdout:
        changed = status.stdout.splitlines()
        raise Refused(f"the tree has {len(changed)} changes that are not committed, {changed[0][3:]} first")
    entry = re.search(rf"^## \[{re.escape(version)}\] - (\S+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if entry is None:
        raise Refused(f"CHANGELOG.md has no entry `## [{version}] - DATE`")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", entry[1]):
        raise Refused(f"CHANGELOG.md has {entry[1]!r} for the date of {version}; a release has one like 2026-01-31")


def collect(version: str, dist: Path, out: Path) -> list[Path]:
    """Copies what was built, renamed for a release. Returns the files. Raises Refused."""
    version_line = subprocess.run([dist / "nsqc", "--version"], check=True, capture_output=True, text=True).stdout
    if not version_line.startswith(f"nsqc {version} "):
        raise Refused(f"dist/nsqc is not {version}, it says {version_line.strip()}")
    packages = [only(dist, pattern) for pattern in (
        f"nsqc-{version}-*.whl", f"nsqc-{version}.tar.gz", f"nsqc_{version}_*.deb")]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in packages:
        shutil.copy2(path, out)
    name = f"nsqc-{version}-linux-{platform.machine()}"
    shutil.copy2(dist / "nsqc", out / name)
    with tarfile.open(out / f"{name}-folder.tar.gz", "w:gz", compresslevel=6) as archive:
        # dist/nsqc-folder may be a link to the folder.
        archive.add((dist / "nsqc-folder").resolve(), f"{name}-folder", filter=owned_by_root)
    files = sorted(out.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(sums))
    return files


def only(folder: Path, pattern: str) -> Path:
    """The only file that matches. Raises Refused."""
    matches = list(folder.glob(pattern))
    if len(matches) != 1:
        raise Refused(f"there are {len(matches)} files {folder.name}/{pattern}")
    return matches[0]


def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names of the user who builds."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("check", "collect"))
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    version = version_of_tree(arguments.root)
    try:
        if arguments.step == "check":
            check(arguments.root, version)
            return
        for path in collect(version, arguments.dist, arguments.dist / "release"):
            print(f"{path.stat().st_size:>10}  {path.name}")
    except Refused as error:
        raise SystemExit(f"no release: {error}") from None


if __name__ == "__main__":
    main()
