"""The packages built by `make package-test`, copied to a place where any user may run them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.packaging import container
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).parent.parent.parent
DIST = ROOT / "dist"
NOBODY = 65534
RELEASER = "releaser@nsqc.invalid"


def built(path: Path) -> Path:
    """A result of the build, which must exist."""
    assert path.exists(), f"{path.relative_to(ROOT)} is missing: these tests are run by `make package-test`"
    return path


def run(*words, **more) -> str:
    """What a command prints, which must succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=WAIT_SECONDS, **more)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="session")
def keyring(tmp_path_factory):
    """The environment for gpg, with a keyring that has the releaser's key."""
    folder = tmp_path_factory.mktemp("gnupg")
    folder.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(folder)}
    subprocess.run(["gpg", "--quiet", "--batch", "--passphrase", "", "--quick-generate-key", RELEASER, "ed25519", "sign"], check=True,
                   env=environment)
    yield environment
    subprocess.run(["gpgconf", "--kill", "all"], env=environment)


@pytest.fixture(scope="session")
def open_folder():
    """A folder that other users can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="nsqc-package-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", params=["file", "folder"])
def binary(request, open_folder) -> Path:
    """The executable, as one file and as a folder."""
    if request.param == "file":
        path = open_folder / "nsqc"
        shutil.copy(built(DIST / "nsqc"), path)
        return path
    folder = open_folder / "lib"
    shutil.copytree(built(DIST / "nsqc-folder"), folder, symlinks=True)
    return folder / "nsqc"


@pytest.fixture
def bare(open_folder):
    """bare(binary): a command that starts it with an almost empty environment, no home directory, and as nobody.

    Returns the words to put before the flags, and a folder that user may write to.
    """
    folders = []

    def words(path: Path) -> tuple[tuple[str, ...], Path]:
        folder = Path(tempfile.mkdtemp(dir=open_folder))
        folders.append(folder)
        (folder / "unpacked").mkdir()
        # Root has every permission: a run as root would hide missing ones.
        drop = ()
        if os.getuid() == 0:
            drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
            for owned in (folder, folder / "unpacked"):
                os.chown(owned, NOBODY, NOBODY)
        return (*drop, "env", "-i", "HOME=/proc/none", f"TMPDIR={folder}/unpacked", str(path)), folder

    yield words
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    built(DIST / "nsqc-folder")
    out = tmp_path_factory.mktemp("image")
    done = subprocess.run([sys.executable, ROOT / "packaging/image.py", "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path, = out.iterdir()
    return path


@pytest.fixture(scope="session")
def image(archive, open_folder):
    return container.unpack(archive, open_folder)


@pytest.fixture
def data(tmp_path):
    """A volume: /data of the image as owned by its user."""
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, container.USER, 0)
    return folder
