"""Builds the container image, without Docker: an OCI layout in one tar, readable by `docker load`, podman and skopeo.

    python packaging/image.py [--version 1.2.3] [--out dist]

Two layers: the executable's dependencies from Debian (glibc, certificates), and nsqc. The same files give the same
bytes: entries are sorted, belong to fixed users, and have the time of the last commit, or SOURCE_DATE_EPOCH.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

from deb import PROGRAMS, dpkg_architecture, time_of_tree, version_of_tree

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "dist" / "nsqc-folder"
MOST_BYTES = 60_000_000         # of the files, unpacked
# Debian's packages, and their files that the executable loads. The rest of glibc is locales and conversions.
LIBRARIES = {
    "libc6": ("ld-linux-*.so.*", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
              "libutil.so.1", "libresolv.so.2", "libnss_files.so.2", "libnss_dns.so.2"),
    "libgcc-s1": ("libgcc_s.so.1",),
    "libstdc++6": ("libstdc++.so.6*",),
    "zlib1g": ("libz.so.1*",),
}
AUTHORITIES = "ca-certificates"
USER = 65532                    # as in other rootless images
# NSQ's image has its programs at / and in these folders.
PROGRAM_FOLDERS = ("", "bin/", "usr/local/bin/")
PORTS = (4150, 4151, 4152, 4160, 4161, 4171)
PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\nnsqc:x:{USER}:{USER}:nsqc:/data:/sbin/nologin\n"
GROUP = f"root:x:0:\nnsqc:x:{USER}:\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
TITLE = "nsqc"
DESCRIPTION = "nsqd, nsqlookupd and NSQ's tools in one executable"
LICENSES = "MIT"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


class Refused(Exception):
    """The reason why there is no image; the text is one line."""


class Blob(NamedTuple):
    """A part of an image. plain_digest: of a layer before compression."""

    kind: str
    data: bytes
    plain_digest: str = ""

    @property
    def digest(self) -> str:
        return digest(self.data)

    @property
    def description(self) -> dict:
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.data)}


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Tree:
    """The files of a layer, by name."""

    def __init__(self):
        self.entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add(self, name: str, data: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "",
            user: int = 0, group: int = 0) -> None:
        """Adds an entry, and the folders above it."""
        above = name.rpartition("/")[0]
        if above and above not in self.entries:
            self.folder(above)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(data)
        entry.uid, entry.gid = user, group
        self.entries[name] = entry, data

    def folder(self, name: str, mode: int = 0o755, user: int = 0, group: int = 0) -> None:
        self.add(name, mode=mode, kind=tarfile.DIRTYPE, user=user, group=group)

    def link(self, name: str, target: str) -> None:
        self.add(name, mode=0o777, kind=tarfile.SYMTYPE, link=target)

    def file(self, name: str, path: Path) -> None:
        """Adds a file or link of this machine."""
        if path.is_symlink():
            self.link(name, os.readlink(path))
        else:
            self.add(name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.entries.values())

    def layer(self, epoch: int) -> Blob:
        """The layer as a compressed tar."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for _, (entry, data) in sorted(self.entries.items()):
                entry.mtime = epoch
                archive.addfile(entry, io.BytesIO(data))
        return Blob(LAYER_TYPE, gzip.compress(plain.getvalue(), 9, mtime=0), digest(plain.getvalue()))


# ---------------------------------------------------------------------- Debian's layer


def dpkg(*words: str) -> str:
    done = subprocess.run(["dpkg-query", *words], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"dpkg-query {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def files_of(package: str, architecture: str) -> dict[str, str]:
    """The MD5 sum of each file of an installed package, by path. Links have none."""
    owner = f"{package}:{architecture}" if package != AUTHORITIES else package
    sums = dict(reversed(line.split("  ", 1)) for line in dpkg("--control-show", owner, "md5sums").splitlines())
    return {path.strip("/"): sums.get(path.strip("/"), "") for path in dpkg("--listfiles", owner).splitlines()}


def checked(path: Path, wanted: str) -> Path:
    """The file, if it matches its package: files changed on this machine do not get into an image."""
    if wanted and hashlib.md5(path.read_bytes()).hexdigest() != wanted:
        raise Refused(f"{path} is not the one of its package: reinstall it")
    return path


def base(architecture: str) -> Tree:
    """The layer with the executable's system dependencies."""
    tree = Tree()
    for package, patterns in LIBRARIES.items():
        for name, wanted in files_of(package, architecture).items():
            path = Path("/", name)
            if any(path.match(pattern) for pattern in patterns) and not path.is_dir() and "/share/" not in name:
                # The packages' path, on systems with one folder for libraries and with two.
                tree.file(re.sub(r"^(usr/)?lib", "lib", name), checked(path, wanted))
        record(tree, package, architecture)
    certificates = [checked(Path("/", name), wanted).read_bytes() for name, wanted in files_of(AUTHORITIES, "").items()
                    if name.startswith("usr/share/ca-certificates/") and name.endswith(".crt")]
    if not certificates:
        raise Refused("the package ca-certificates has no certificates")
    tree.add("etc/ssl/certs/ca-certificates.crt", b"".join(one.rstrip() + b"\n" for one in certificates))
    record(tree, AUTHORITIES, architecture)
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)):
        tree.add(f"etc/{name}", text.encode())
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            tree.add("etc/os-release", f"{line}\nID=debian\nVERSION_ID=\"{debian_release()}\"\n".encode())
    tree.folder("tmp", 0o1777)
    return tree


def debian_release() -> str:
    found = re.search(r'^VERSION_ID="?(\d+)', Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else ""


def record(tree: Tree, package: str, architecture: str) -> None:
    """License, and metadata for image scanners."""
    owner = f"{package}:{architecture}" if package != AUTHORITIES else package
    status = dpkg("--show", "--showformat=Package: ${Package}\nVersion: ${Version}\nArchitecture: ${Architecture}\n"
                            "Source: ${source:Package}\nStatus: install ok installed\nMaintainer: ${Maintainer}\n"
                            "Description: ${binary:Summary}\n", owner)
    tree.add(f"var/lib/dpkg/status.d/{package}", status.encode())
    license_file = Path("/usr/share/doc", package, "copyright")
    if license_file.exists():
        tree.add(f"usr/share/doc/{package}/copyright", license_file.read_bytes())


# ---------------------------------------------------------------------- nsqc's layer


def program() -> Tree:
    """The layer with nsqc, its other names, and a place for data."""
    if not (FOLDER / "nsqc").exists():
        raise Refused("dist/nsqc-folder is missing: run `make bin`")
    tree = Tree()
    for path in sorted(FOLDER.resolve().rglob("*")):
        if not path.is_dir():
            tree.file(f"usr/lib/nsqc/{path.relative_to(FOLDER.resolve())}", path)
    tree.link("usr/bin/nsqc", "../lib/nsqc/nsqc")
    for folder in PROGRAM_FOLDERS:
        for name in PROGRAMS:
            tree.link(f"{folder}{name}", "/usr/lib/nsqc/nsqc")
    tree.add("usr/share/doc/nsqc/copyright", (ROOT / "packaging/deb/copyright").read_bytes())
    # Group 0 may write, too: some clusters run containers as any user of that group.
    tree.folder("data", 0o775, USER, 0)
    return tree


def configuration(version: str, architecture: str, layers: list[Blob], epoch: int) -> Blob:
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ports = {f"{port}/tcp": {} for port in PORTS}
    config = {
        "created": created, "architecture": architecture, "os": "linux",
        "config": {
            "User": f"{USER}:{USER}", "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": ["/usr/bin/nsqc"],
            "Cmd": ["serve"], "WorkingDir": "/data", "Volumes": {"/data": {}}, "ExposedPorts": ports,
            "StopSignal": "SIGTERM",
            "Labels": {f"org.opencontainers.image.{name}": text for name, text in {
                "title": TITLE, "version": version, "description": DESCRIPTION, "licenses": LICENSES,
                "created": created}.items()}},
        "rootfs": {"type": "layers", "diff_ids": [layer.plain_digest for layer in layers]},
        "history": [{"created": created, "created_by": f"packaging/image.py: {what}"}
                    for what in ("Debian's libraries", "nsqc")],
    }
    return Blob(CONFIG_TYPE, compact(config))


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def layout(version: str, config: Blob, layers: list[Blob], epoch: int, path: Path) -> None:
    """The tar: an OCI layout, and manifest.json for Docker versions that do not read it."""
    manifest = Blob(MANIFEST_TYPE, compact({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config.description,
        "layers": [layer.description for layer in layers]}))
    names = {"org.opencontainers.image.ref.name": version,
             "io.containerd.image.name": f"docker.io/library/nsqc:{version}"}
    tree = Tree()
    for blob in (config, *layers, manifest):
        tree.add(blob_name(blob), blob.data)
    tree.add("oci-layout", compact({"imageLayoutVersion": "1.0.0"}))
    tree.add("index.json", compact({
        "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [{**manifest.description, "annotations": names}]}))
    tree.add("manifest.json", compact([{"Config": blob_name(config), "RepoTags": [f"nsqc:{version}"],
                                        "Layers": [blob_name(layer) for layer in layers]}]))
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for _, (entry, data) in sorted(tree.entries.items()):
            entry.mtime = epoch
            archive.addfile(entry, io.BytesIO(data))


def blob_name(blob: Blob) -> str:
    return f"blobs/{blob.digest.replace(':', '/')}"


def build(version: str, out: Path) -> Path:
    """Writes the image. Returns its path. Raises Refused."""
    architecture = dpkg_architecture()
    trees = [base(architecture), program()]
    size = sum(tree.size for tree in trees)
    if size > MOST_BYTES:
        raise Refused(f"the files of the image have {size:,} bytes; {MOST_BYTES:,} are the limit")
    epoch = time_of_tree()
    layers = [tree.layer(epoch) for tree in trees]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"nsqc-{version}-image-{architecture}.tar"
    layout(version, configuration(version, architecture, layers, epoch), layers, epoch, path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default=version_of_tree())
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    try:
        print(build(arguments.version, arguments.out))
    except Refused as error:
        raise SystemExit(f"no image: {error}") from None
