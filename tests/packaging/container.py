"""A container runtime's part: unpacks an image and runs it in its own namespaces, as its user, on a read-only root.

Uses util-linux alone, which every system has. Needs root, as runtimes do.
"""

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS

USER = 65532
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="namespaces with other users take root")
# $0: the root; $1: a folder for /data; $2: user:group; then the command. The shell that becomes the program is process 1.
SCRIPT = """
set -e
mount --bind "$0" "$0"
mount --bind "$1" "$0/data"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -o remount,bind,ro "$0"
user=$2
folder=$3
shift 3
exec setpriv --clear-groups unshare --root="$0" --wd="$folder" --setgid="${user#*:}" --setuid="${user%:*}" -- "$@"
"""


class Image(NamedTuple):
    """config: its configuration; root: its files, unpacked."""

    config: dict
    root: Path

    def words(self, data: Path, command: list[str], entrypoint: list[str] | None = None, user: str = "") -> tuple[str, ...]:
        """The command line that runs a command in it, by default its own. entrypoint: instead of the image's."""
        run = self.config["config"]
        full = [*(run["Entrypoint"] if entrypoint is None else entrypoint), *(command or (run["Cmd"] if entrypoint is None else []))]
        return ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, str(self.root), str(data),
                user or run["User"], run["WorkingDir"], *full)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of the container."""
        return {**dict(pair.split("=", 1) for pair in self.config["config"]["Env"]), **more}


def parts(path: Path) -> dict[str, bytes]:
    """The files of the tar, by name."""
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


def unpack(path: Path, folder: Path) -> Image:
    """Checks every digest, and unpacks the layers into folder/root."""
    files = parts(path)

    def blob(description: dict) -> bytes:
        data = files[f"blobs/{description['digest'].replace(':', '/')}"]
        assert len(data) == description["size"]
        assert description["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        return data

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    described, = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    root = folder / "root"
    root.mkdir()
    for description, plain in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = gzip.decompress(blob(description))
        assert plain == f"sha256:{hashlib.sha256(data).hexdigest()}"
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(root, numeric_owner=True, filter="fully_trusted")
    for place in ("proc", "dev"):       # which a runtime makes
        (root / place).mkdir(exist_ok=True)
    return Image(config, root)


def first_process(outer: subprocess.Popen) -> int:
    """The id, outside, of the container's process 1."""
    path = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    return int(wait_until(lambda: path.read_text().split(), "process 1")[0])


def run(image: Image, data: Path, *command: str, entrypoint: list[str] | None = None, **environment: str
        ) -> subprocess.CompletedProcess:
    """Runs a command in it to its end."""
    return subprocess.run(image.words(data, list(command), entrypoint), env=image.environment(PATH=os.environ["PATH"], **environment),
                          capture_output=True, text=True, timeout=WAIT_SECONDS)


class Contained(Daemon):
    """A daemon in a container; its signals go to process 1."""

    def __init__(self, image, data, *flags, command=(), entrypoint=None, **environment):
        self.image, self.folder = image, data
        words = image.words(data, [*command], entrypoint)
        super().__init__(data.parent / "daemon", *flags, command=words, env={"PATH": os.environ["PATH"],
                                                                             **image.environment(**environment)})

    def start(self, *more):
        # Not a path inside the container.
        data_path, self.data_path = self.data_path, "/data"
        try:
            super().start(*more)
        finally:
            self.data_path = data_path

    def stop(self, number=signal.SIGTERM):
        os.kill(first_process(self.process), number)
        return self.process.wait(WAIT_SECONDS)
