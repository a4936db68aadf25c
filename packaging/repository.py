"""An apt repository from Debian packages: a folder that any web server can serve.

    python packaging/repository.py [--key KEY] FOLDER PACKAGE...

    FOLDER/pool/nsqc_0.1.0_amd64.deb
    FOLDER/dists/stable/Release, main/binary-amd64/Packages, Packages.gz
    FOLDER/dists/stable/InRelease, Release.gpg, and FOLDER/nsqc.gpg, the public key: with --key, a key of gpg's keyring
"""

import argparse
import datetime
import gzip
import hashlib
import shutil
import subprocess
from pathlib import Path

from deb import time_of_tree

SUITE, COMPONENT = "stable", "main"
# apt requests the packages of its architecture; those of "all" are in every such list.
ALL = "all"
PUBLIC_KEY = "nsqc.gpg"
HASHES = {"MD5Sum": hashlib.md5, "SHA256": hashlib.sha256}


class NotSigned(Exception):
    """Why the repository has no signature; the text is one line."""


def control(package: Path) -> str:
    """The control fields of a package."""
    return subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout


def field(text: str, name: str) -> str:
    """One of them."""
    return next(line.partition(": ")[2] for line in text.splitlines() if line.startswith(f"{name}: "))


def stanza(package: Path, place: str) -> str:
    """A package in a list."""
    data = package.read_bytes()
    return (f"{control(package).rstrip()}\nFilename: {place}\nSize: {len(data)}\n"
            f"MD5sum: {hashlib.md5(data).hexdigest()}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")


def release(folder: Path, architectures: list[str]) -> str:
    """The Release file of dists/stable."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    moment = datetime.datetime.fromtimestamp(time_of_tree(), datetime.UTC)
    lines = ["Origin: nsqc", "Label: nsqc", f"Suite: {SUITE}", f"Codename: {SUITE}",
             f"Date: {moment:%a, %d %b %Y %H:%M:%S} UTC", f"Architectures: {' '.join(architectures)}",
             f"Components: {COMPONENT}", "Description: nsqc, a message queue for NSQ's clients"]
    for title, digest in HASHES.items():
        lines.append(f"{title}:")
        for path in files:
            data = path.read_bytes()
            lines.append(f" {digest(data).hexdigest()} {len(data)} {path.relative_to(folder)}")
    return "\n".join(lines) + "\n"


def gpg(key: str, *words: str | Path) -> None:
    """Runs gpg, which may ask for the key's password. Raises NotSigned."""
    if shutil.which("gpg") is None:
        raise NotSigned("gpg is not here (Debian: apt-get install gpg)")
    done = subprocess.run(["gpg", "--quiet", "--yes", "--local-user", key, *words])
    if done.returncode:
        raise NotSigned(f"gpg has not signed with the key {key}: gpg --list-secret-keys shows yours")


def sign(folder: Path, key: str) -> None:
    """Signs the Release file both ways that apt knows, and exports the public key. Raises NotSigned."""
    place = folder / "dists" / SUITE
    gpg(key, "--clearsign", "--output", place / "InRelease", place / "Release")
    gpg(key, "--detach-sign", "--armor", "--output", place / "Release.gpg", place / "Release")
    gpg(key, "--output", folder / PUBLIC_KEY, "--export", key)


def build(folder: Path, packages: list[Path], key: str = "") -> None:
    """Replaces the folder with the repository. Raises NotSigned."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pool").mkdir(parents=True)
    stanzas: dict[str, list[str]] = {}
    for package in sorted(packages):
        shutil.copy2(package, folder / "pool")
        stanzas.setdefault(field(control(package), "Architecture"), []).append(stanza(package, f"pool/{package.name}"))
    dist = folder / "dists" / SUITE
    architectures = sorted(stanzas.keys() - {ALL})
    for architecture in architectures:
        place = dist / COMPONENT / f"binary-{architecture}"
        place.mkdir(parents=True)
        text = "\n".join(stanzas[architecture] + stanzas.get(ALL, [])).encode()
        (place / "Packages").write_bytes(text)
        (place / "Packages.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    (dist / "Release").write_text(release(dist, architectures))
    if key:
        sign(folder, key)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", type=Path, nargs="+")
    parser.add_argument("--key", default="", help="signs the repository: a fingerprint or mail address")
    arguments = parser.parse_args()
    try:
        build(arguments.folder, arguments.packages, arguments.key)
    except NotSigned as error:
        raise SystemExit(f"the repository is not signed: {error}") from None
