"""The steps of a release other than building.

    python packaging/release.py check      refuses what must not be released
    python packaging/release.py collect    dist/release: executable, folder, image, packages, wheels, chart, bill of
                                           materials, apt repository, SHA256SUMS
    python packaging/release.py sign --key FILE    a detached signature of SHA256SUMS, by an SSH or minisign key
"""

import argparse
import hashlib
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import repository
from portable import OUTDATED

ROOT = Path(__file__).parent.parent
SUMS = "SHA256SUMS"
# The namespace of SSH signatures; a check has to name it.
NAMESPACE = "nsqc-release"
MINISIGN = b"untrusted comment:"
# Files of dist/ with exactly one match each.
EACH_ONCE = ("nsqc-{version}.tar.gz", "nsqc_{version}_*.deb", "nsqc-nsq-compat_{version}_all.deb",
             "nsqc-{version}-1.*.rpm", "nsqc-nsq-compat-{version}-1.noarch.rpm", "nsqc-{version}-image-*.tar",
             "nsqc-{version}.cdx.json", "nsqc-{version}.tgz")
WHEELS = "nsqc-{version}-*.whl"
LOOSE = ("packaging/compose/compose.yaml", "packaging/kubernetes/nsqc.yaml")


class Refused(Exception):
    """Why a release is refused; the text is one line."""


def version_of_tree(root: Path) -> str:
    """The version, from its single source."""
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


def collect(version: str, dist: Path, out: Path, apt_key: str = "") -> list[Path]:
    """Copies the build results, renamed for a release. Returns the files. Raises Refused."""
    version_line = subprocess.run([dist / "nsqc", "--version"], check=True, capture_output=True, text=True).stdout
    if not version_line.startswith(f"nsqc {version} "):
        raise Refused(f"dist/nsqc is not {version}, it says {version_line.strip()}")
    packages = [only(dist, pattern.format(version=version)) for pattern in EACH_ONCE]
    packages += several(dist, WHEELS.format(version=version))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in packages:
        shutil.copy2(path, out)
    name = f"nsqc-{version}-linux-{platform.machine()}"
    shutil.copy2(dist / "nsqc", out / name)
    with tarfile.open(out / f"{name}-folder.tar.gz", "w:gz", compresslevel=6) as archive:
        # dist/nsqc-folder may be a link to the folder.
        archive.add((dist / "nsqc-folder").resolve(), f"{name}-folder", filter=owned_by_root)
    for path in LOOSE:
        shutil.copy2(ROOT / path, out / f"nsqc-{version}-{path.replace('/', '-').removeprefix('packaging-')}")
    try:
        repository.build(out / "apt", sorted(out.glob("*.deb")), apt_key)
    except repository.NotSigned as error:
        raise Refused(str(error)) from None
    files = sorted(path for path in out.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files]
    (out / SUMS).write_text("".join(sums))
    return files


def sign(out: Path, key: Path) -> Path:
    """Signs the sums, with minisign for a minisign key, otherwise with SSH. Returns the signature. Raises Refused."""
    try:
        is_minisign = key.read_bytes().startswith(MINISIGN)
    except OSError as error:
        raise Refused(f"the signing key {key} cannot be read: {error.strerror}") from None
    sums = out / SUMS
    words = (["minisign", "-S", "-s", key, "-m", sums, "-t", f"nsqc {sums.parent.name}"] if is_minisign else
             ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, sums])
    signature = sums.with_name(f"{SUMS}.minisig" if is_minisign else f"{SUMS}.sig")
    signature.unlink(missing_ok=True)
    # The terminal stays connected: both prompt for the key's password.
    if subprocess.run(words).returncode or not signature.exists():
        raise Refused(f"{words[0]} has not signed {sums}")
    return signature


def several(folder: Path, pattern: str) -> list[Path]:
    """The matching files, at least one. Raises Refused."""
    matches = sorted(folder.glob(pattern))
    if not matches:
        raise Refused(f"there are 0 files {folder.name}/{pattern}")
    return matches


def only(folder: Path, pattern: str) -> Path:
    """The only matching file. Raises Refused."""
    matches = list(folder.glob(pattern))
    if len(matches) != 1:
        raise Refused(f"there are {len(matches)} files {folder.name}/{pattern}")
    return matches[0]


def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owner without the names of the building user."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("check", "collect", "sign"))
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--key", type=Path, help="of the releaser; for sign")
    parser.add_argument("--apt-key", default="", help="a key of gpg's keyring, for the apt repository; for collect")
    arguments = parser.parse_args()
    version = version_of_tree(arguments.root)
    try:
        if arguments.step == "check":
            check(arguments.root, version)
            return
        if arguments.step == "sign":
            if arguments.key is None:
                raise Refused("sign needs --key, a file with an SSH or minisign key")
            print(sign(arguments.dist / "release", arguments.key))
            return
        for path in collect(version, arguments.dist, arguments.dist / "release", arguments.apt_key):
            print(f"{path.stat().st_size:>10}  {path.relative_to(arguments.dist / 'release')}")
        if OUTDATED.exists():       # once more: a long build has printed much since
            print(OUTDATED.read_text(), end="")
    except Refused as error:
        raise SystemExit(f"no release: {error}") from None


if __name__ == "__main__":
    main()
