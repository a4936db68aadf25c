"""What prevents a release, and what a release consists of."""

import re
import subprocess
import sys

import pytest

from nsqc import __version__
from tests.packaging.conftest import DIST, ROOT, built

RELEASE = (sys.executable, str(ROOT / "packaging" / "release.py"))
DATED = f"## [{__version__}] - 2026-01-31\n"


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x.invalid", *words], cwd=folder, check=True,
                   capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """A clean tree, ready for a release."""
    (tmp_path / "nsqc").mkdir()
    (tmp_path / "nsqc" / "__init__.py").write_text((ROOT / "nsqc" / "__init__.py").read_text())
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    return tmp_path


def check(tree) -> tuple[int, str]:
    done = subprocess.run([*RELEASE, "check", "--root", tree], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_clean_tree_with_an_entry(tree):
    assert check(tree) == (0, "")


def test_changes_that_are_not_committed(tree):
    (tree / "new").touch()
    assert check(tree) == (1, "no release: the tree has 1 changes that are not committed, new first\n")


@pytest.mark.parametrize(("text", "reason"), [
    ("## [0.0.1] - 2026-01-31\n", f"CHANGELOG.md has no entry `## [{__version__}] - DATE`"),
    (DATED.replace("2026-01-31", "unreleased"), f"CHANGELOG.md has 'unreleased' for the date of {__version__}"),
])
def test_the_changelog(tree, text, reason):
    (tree / "CHANGELOG.md").write_text(text)
    git(tree, "commit", "--quiet", "-am", "x")
    code, told = check(tree)
    assert code == 1 and reason in told


def test_this_version_has_an_entry():
    assert re.search(rf"^## \[{re.escape(__version__)}\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_what_is_released(tmp_path):
    names = ["nsqc", "nsqc-folder", f"nsqc-{__version__}.tar.gz"]
    names += [path.name for path in DIST.glob(f"nsqc-{__version__}-*.whl")]
    for name in names:
        (tmp_path / name).symlink_to(built(DIST / name))
    collect = [*RELEASE, "collect", "--dist", tmp_path]
    done = subprocess.run(collect, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"no release: there are 0 files {tmp_path.name}/nsqc_{__version__}_*.deb\n")

    (tmp_path / f"nsqc_{__version__}_amd64.deb").touch()
    done = subprocess.run(collect, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    out = tmp_path / "release"
    assert len(list(out.iterdir())) == 6
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=out, check=True)
    archive, = out.glob("nsqc-*-folder.tar.gz")
    subprocess.run(["tar", "xzf", archive], cwd=tmp_path, check=True)
    for executable in (tmp_path / archive.name.removesuffix(".tar.gz") / "nsqc",
                       out / archive.name.removesuffix("-folder.tar.gz")):
        assert __version__ in subprocess.run([executable, "--version"], capture_output=True, text=True).stdout
