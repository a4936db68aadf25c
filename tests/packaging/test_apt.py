"""The Debian packages through apt in an older Debian, with the commands of docs/installing.md: from the signed
repository, and from a file. `make old-test` runs these."""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nsqc import __version__
from tests.packaging import old_system
from tests.packaging.conftest import DIST, RELEASER, ROOT, built
from tests.packaging.old_system import ROOT as OLD
from tests.packaging.old_system import inside
from tests.support.pages import blocks

PAGE, TITLE = "docs/installing.md", "apt repository"
SERVER = "https://apt.example/nsqc"
NEXT = "99.0"
NSQ = "Package: nsq\nVersion: 1.3.0\nArchitecture: all\nMaintainer: x <x@x.invalid>\nDescription: x\n"
pytestmark = old_system.needed


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def repository(keyring, tmp_path):
    """A repository on a web server: its address, and a function that publishes packages in it."""
    folder = tmp_path / "apt"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever).start()

    def publish(*packages):
        subprocess.run([sys.executable, ROOT / "packaging/repository.py", "--key", RELEASER, folder, *packages], check=True, env=keyring)

    publish(*debs())
    yield f"http://127.0.0.1:{server.server_port}", folder, publish
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def clean():
    """Restores the system."""
    yield
    for name in ("nsq", "nsqc-nsq-compat", "nsqc"):
        if status(name) not in ("", "not-installed "):
            inside("dpkg", "--purge", name)
    (OLD / "etc/apt/sources.list.d/nsqc.list").unlink(missing_ok=True)


def debs() -> list[Path]:
    return [built(next(DIST.glob(f"{name}_{__version__}_*.deb"), DIST / f"{name}_{__version__}_amd64.deb"))
            for name in ("nsqc", "nsqc-nsq-compat")]


def status(name: str) -> str:
    """dpkg's status of a package; empty: unknown."""
    return old_system.run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name).stdout


def is_installed(name: str) -> bool:
    return status(name).startswith("installed ")


def by_the_page(address: str, folder: Path) -> None:
    """Runs the page's commands for a machine that installs nsqc."""
    script, = blocks(PAGE, "bash", TITLE)
    shutil.copy(folder / "nsqc.gpg", OLD / "root/nsqc.gpg")
    inside("sh", "-euc", f"cd /root\n{script.replace(SERVER, address)}")


def test_install_upgrade_remove_purge(repository, tmp_path):
    address, folder, publish = repository
    by_the_page(address, folder)
    assert status("nsqc") == f"installed {__version__}"
    assert inside("nsqc", "--version").startswith(f"nsqc {__version__} ")
    assert (OLD / "etc/systemd/system/multi-user.target.wants/nsqc.service").is_symlink()
    assert "ok, 0 options" in inside("nsqc", "config", "check", "/etc/nsqc/nsqc.cfg")
    config = OLD / "etc/nsqc/nsqc.cfg"
    config.write_text("max_rdy_count = 7\n" + config.read_text())
    (OLD / "var/lib/nsqc").mkdir(exist_ok=True)
    (OLD / "var/lib/nsqc/nsqd.dat").write_text("{}")

    later = subprocess.run([sys.executable, ROOT / "packaging/deb.py", "--fast", "--version", NEXT, "--out", tmp_path], check=True,
                           capture_output=True, text=True).stdout.split()
    publish(*later)
    inside("apt-get", "--quiet", "update")
    inside("apt-get", "--yes", "--quiet", "upgrade")
    assert status("nsqc") == f"installed {NEXT}"
    assert config.read_text().startswith("max_rdy_count = 7\n"), "what was edited is kept"

    inside("apt-get", "--yes", "--quiet", "remove", "nsqc")
    assert status("nsqc") == f"config-files {NEXT}"
    assert config.exists() and (OLD / "var/lib/nsqc/nsqd.dat").exists() and not (OLD / "usr/bin/nsqc").is_symlink()
    inside("apt-get", "--yes", "--quiet", "purge", "nsqc")
    assert status("nsqc") in ("", f"not-installed {NEXT}")
    assert not any((OLD / name).exists() for name in ("etc/nsqc", "var/lib/nsqc", "usr/lib/nsqc"))


def test_nsq_and_its_names_are_never_both_there(repository, tmp_path):
    address, folder, publish = repository
    (tmp_path / "nsq/DEBIAN").mkdir(parents=True)
    (tmp_path / "nsq/DEBIAN/control").write_text(NSQ)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tmp_path / "nsq", tmp_path / "nsq.deb"], check=True, capture_output=True)
    publish(*debs(), tmp_path / "nsq.deb")
    by_the_page(address, folder)
    inside("apt-get", "--yes", "--quiet", "install", "nsqc-nsq-compat")
    assert inside("nsqd", "--version").startswith("nsqd v1.3.0 ")
    inside("apt-get", "--yes", "--quiet", "install", "nsq")
    assert status("nsq") == "installed 1.3.0" and not is_installed("nsqc-nsq-compat")
    inside("apt-get", "--yes", "--quiet", "install", "nsqc-nsq-compat")
    assert status("nsqc-nsq-compat") == f"installed {__version__}"
    assert not is_installed("nsq")


def test_a_changed_list_is_refused(repository):
    address, folder, _ = repository
    release = folder / "dists/stable/InRelease"
    release.write_text(release.read_text().replace("Label: nsqc", "Label: other"))
    (folder / "dists/stable/Release.gpg").unlink()
    with pytest.raises(AssertionError, match="BADSIG"):
        by_the_page(address, folder)


def test_a_package_in_a_file():
    """As after a download: apt fetches its dependencies."""
    package, links = debs()
    for path in (package, links):
        shutil.copy(path, OLD / "root" / path.name)
    inside("apt-get", "--quiet", "update")
    words = re.search(r"`(apt install \./nsqc_\S+\.deb)`", (ROOT / PAGE).read_text())[1].split()
    done = inside("sh", "-c", f"cd /root && {' '.join(words)} --yes 2>&1")
    assert status("nsqc") == f"installed {__version__}", done
    inside("apt-get", "--yes", "install", f"/root/{links.name}")
    assert status("nsqc-nsq-compat") == f"installed {__version__}"
