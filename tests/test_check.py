"""The output of `make` on a machine that lacks something: everything, in one line; the README has the same packages."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS

CHECK = ROOT / "packaging" / "check.sh"
BUILD = {"python3", "python3-venv", "python3-dev", "gcc", "libc6-dev"}
TESTS = {"nodejs", "npm", "openjdk-17-jre-headless", "openssl", "libssl-dev", "zlib1g-dev", "systemd", "dpkg", "bash", "git", "curl"}


@pytest.fixture
def check(tmp_path):
    """check(*words, has=names of commands, **environment) -> exit code, output; on a machine with only these
    commands."""
    folder = tmp_path / "bin"

    def run(*words: str, has=(), **environment) -> tuple[int, str]:
        folder.mkdir()
        for name in ("sh", "id", "grep", *has):
            (folder / name).symlink_to(shutil.which(name))
        env = {name: value for name, value in os.environ.items() if name not in ("CC", "JAVA_HOME", "PYTHON")}
        done = subprocess.run(["sh", CHECK, *words], env={**env, "PATH": str(folder), **environment}, capture_output=True, text=True,
                              timeout=WAIT_SECONDS)
        assert done.stdout == ""
        return done.returncode, done.stderr

    return run


def packages(told: str) -> set[str]:
    assert told.count("\n") == 1
    return set(re.search(r"\. On Debian: apt-get install (.+)\n$", told)[1].split())


def test_an_empty_machine_lacks_everything_at_once(check):
    code, told = check()
    assert (code, packages(told)) == (1, BUILD)
    assert told.startswith("The build cannot run: this machine lacks Python 3.11 or later, a C compiler. On Debian: ")


def test_and_more_for_the_tests(check):
    code, told = check("tests")
    assert code == 1
    assert packages(told) - {"fakeroot"} == BUILD | TESTS
    assert ("fakeroot" in packages(told)) == (os.getuid() != 0)


def test_only_what_is_missing_is_named(check, tmp_path):
    java = tmp_path / "jdk" / "bin"
    java.mkdir(parents=True)
    (java / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    (java / "java").chmod(0o755)
    code, told = check("tests", has=("gcc", "as", "node", "npm", "openssl", "systemd-analyze", "dpkg-deb", "fakeroot",
                                     "bash", "git"), CC="gcc", PYTHON=sys.executable, JAVA_HOME=str(java.parent))
    assert (code, packages(told)) == (1, {"openjdk-17-jre-headless", "curl"})


def test_an_old_python_is_named(check, tmp_path):
    python = tmp_path / "python3.9"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    code, told = check(has=("gcc",), CC="gcc", PYTHON=str(python))
    assert code == 1
    assert f"Python 3.11 or later ({python} is older; with another one: make PYTHON=python3.11)" in told


def test_the_readme_has_all_packages_of_the_build_and_the_command_for_the_others():
    lines = [line for block in blocks("README.md") for line in block.splitlines()]
    (apt,) = (line for line in lines if line.startswith("apt-get install "))
    assert set(apt.split()) >= BUILD | {"make"}
    assert any(line.startswith("make system-packages ") for line in lines)


APT_CACHE = """#!/bin/sh
for package; do :; done
case $package in
nodejs) echo "Version: 1"; echo "Provides: {provides}" ;;
{java}) echo "Version: 17" ;;
esac
"""


@pytest.mark.parametrize("provides,java,wanted", [
    ("node-types-node", "openjdk-17-jre-headless", {"npm", "openjdk-17-jre-headless"}),
    ("nodejs-dev, nodejs-legacy, npm", "none", {"default-jre-headless"})], ids=["Debian 12", "NodeSource, Debian 13"])
def test_the_packages_to_install_fit_this_machines_apt(tmp_path, provides, java, wanted):
    """make system-packages installs just these. NodeSource's nodejs conflicts with npm; Debian 13 has no Java 17."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "id", "grep", "gcc", "as", "openssl", "systemd-analyze", "dpkg-deb", "bash", "git", "curl", "make", "find", "env"):
        (programs / name).symlink_to(shutil.which(name))
    for name, text in (("apt-cache", APT_CACHE.format(provides=provides, java=java)), ("apt-get", '#!/bin/sh\necho "apt-get $*"\n'),
                       ("fakeroot", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def told() -> str:
        done = subprocess.run(["make", "--silent", "system-packages", f"PYTHON={sys.executable}"], cwd=ROOT, capture_output=True, text=True,
                              env={"PATH": str(programs), "CC": "gcc"}, timeout=WAIT_SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout
    assert set(told().split()) == {"apt-get", "install", "nodejs"} | wanted
    (programs / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    for name in ("node", "npm", "java"):
        (programs / name).touch()
        (programs / name).chmod(0o755)
    assert told() == "nsqc: this machine lacks no package\n"
