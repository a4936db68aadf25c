"""The RPM packages, by RPM itself below a separate root: installed, run, upgraded, removed."""

import os
import shutil
import subprocess
import sys

import pytest

from nsqc import __version__
from tests.packaging.conftest import DIST, ROOT, built, run

NEXT = "99.0"
pytestmark = [pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not here (apt-get install rpm)"),
              pytest.mark.skipif(os.getuid() != 0, reason="RPM changes owners, which takes root")]
# Records its arguments.
SYSTEMCTL = '#!/bin/sh\necho "$*" >>/systemctl.log\n'


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """This version and a later one: of each, nsqc and the links with NSQ's names."""
    built(DIST / "nsqc-folder")
    out = tmp_path_factory.mktemp("rpms")
    build = (sys.executable, ROOT / "packaging/rpm.py", "--fast", "--out", out)
    return [run(*build).split(), run(*build, "--version", NEXT).split()]


class Root:
    """A root with its own database, a shell for scripts, and a systemctl that does nothing."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "dev").mkdir()
        (folder / "dev/null").touch()
        for path in ("/bin/sh", *{line.split("=>")[-1].split()[0] for line in run("ldd", "/bin/sh").splitlines() if "/" in line}):
            (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path.lstrip("/"))
        (folder / "bin/systemctl").write_text(SYSTEMCTL)
        (folder / "bin/systemctl").chmod(0o755)
        (folder / "run/systemd/system").mkdir(parents=True)

    def rpm(self, *words) -> str:
        return run("rpm", f"--root={self.folder}", *([] if "--query" in words else ["--nodeps"]), *words)

    def asked(self) -> list[str]:
        """The systemctl calls since the last time."""
        path = self.folder / "systemctl.log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path / "root")


def test_install_run_upgrade_remove(root, packages, daemon):
    root.rpm("--install", packages[0][0])
    assert root.asked() == ["daemon-reload", "preset nsqc.service nsqc-lookupd.service nsqc-admin.service"]
    config = root.folder / "etc/nsqc/nsqc.cfg"
    data = root.folder / "var/lib/nsqc"
    data.mkdir(parents=True)

    def start():
        return daemon(command=(str(root.folder / "usr/bin/nsqc"), "serve", f"--config={config}"), data_path=data)

    node = start()
    node.connect().pub("t", b"x")
    assert node.stop() == 0

    config.write_text("max_rdy_count = 7\n" + config.read_text())
    root.rpm("--upgrade", packages[1][0])
    assert "try-restart nsqc.service nsqc-lookupd.service nsqc-admin.service nsqc@*.service" in root.asked()
    assert root.rpm("--query", "--queryformat=%{VERSION}", "nsqc") == NEXT
    assert config.read_text().startswith("max_rdy_count = 7\n"), "what was edited is kept"
    node = start()
    assert node.stats("t")["depth"] == 1
    assert node.stop() == 0

    root.rpm("--erase", "nsqc")
    asked = root.asked()
    assert asked[0].startswith("--no-reload disable --now ") and asked[0].split().index("nsqc.socket") < asked[0].split().index("nsqc.service")
    assert not (root.folder / "usr/lib/nsqc").exists() and not (root.folder / "usr/bin/nsqc").is_symlink()
    assert (data / "nsqd.dat").exists(), "queues are kept"
    assert config.with_name("nsqc.cfg.rpmsave").exists()


def test_what_is_in_it(packages):
    names = run("rpm", "--query", "--package", "--list", packages[0][0]).splitlines()
    for name in ("/usr/lib/systemd/system/nsqc.service", "/usr/share/man/man1/nsqc.1.gz", "/usr/share/doc/nsqc/docs/operations.md",
                 "/usr/share/nsqc/prometheus/nsqc.rules.yml", "/usr/share/zsh/site-functions/_nsqc", "/etc/nsqc/lookupd.cfg", "/etc/nsqc/admin.cfg"):
        assert name in names
    assert not [name for name in names if "lintian" in name or name.startswith("/lib/")]
    assert set(run("rpm", "--query", "--package", "--queryformat=[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]", packages[0][0]).split()) == {"root:root"}
    assert set(run("rpm", "--query", "--package", "--configfiles", packages[0][0]).split()) == {"/etc/nsqc/nsqc.cfg", "/etc/nsqc/lookupd.cfg", "/etc/nsqc/admin.cfg"}
    needed = run("rpm", "--query", "--package", "--requires", packages[0][0])
    assert "glibc >= 2." in needed and "systemd" in needed
    # RHEL's libgcc, libstdc++ and zlib are libgcc_s1, libstdc++6 and libz1 on SUSE; all provide these.
    assert {"libgcc_s.so.1()(64bit)", "libstdc++.so.6()(64bit)", "libz.so.1()(64bit)"} <= set(needed.split("\n"))


@pytest.mark.skipif(shutil.which("rpmlint") is None, reason="rpmlint is not here (apt-get install rpmlint)")
def test_rpmlint_finds_no_error(packages):
    """Each filter has its reason in packaging/rpmlint.toml."""
    done = subprocess.run(["rpmlint", "--config", ROOT / "packaging/rpmlint.toml", *packages[0]], capture_output=True, text=True)
    assert "0 errors" in done.stdout, done.stdout + done.stderr


def test_nsqs_names_are_a_package_of_their_own(root, packages):
    main, links = packages[0]
    root.rpm("--install", main, links)
    assert "nsqd v1.3.0" in run(root.folder / "usr/bin/nsqd", "--version")
    assert (root.folder / "usr/bin/nsq_to_file").resolve() == (root.folder / "usr/lib/nsqc/nsqc").resolve()
    assert run("rpm", "--query", "--package", "--conflicts", links).strip() == "nsq"
    assert f"nsqc = {__version__}" in run("rpm", "--query", "--package", "--requires", links)


def test_the_same_files_give_the_same_bytes(packages, tmp_path):
    again = run(sys.executable, ROOT / "packaging/rpm.py", "--fast", "--out", tmp_path).split()
    for one, other in zip(packages[0], again, strict=True):
        with open(one, "rb") as first, open(other, "rb") as second:
            assert first.read() == second.read()
