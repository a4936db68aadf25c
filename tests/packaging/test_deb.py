"""The Debian package, installed below a separate root, run, upgraded, removed and purged."""

import fnmatch
import gzip
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from nsqc import __version__, version_line
from nsqc.commands import ORIGINALS
from tests.packaging.conftest import DIST, ROOT, built, run
from tests.support.lookupd import LookupServer, Node
from tests.test_docs import CODE, LINK

TOPIC = "t"
NEXT = "99.0"
SYSTEM = ("lib/systemd/system/nsqc.service", "lib/systemd/system/nsqc.socket", "lib/systemd/system/nsqc-http.socket",
          "lib/systemd/system/nsqc-https.socket", "lib/systemd/system/nsqc@.service", "lib/systemd/system/nsqc-lookupd.service",
          "lib/systemd/system/nsqc-lookupd.socket", "lib/systemd/system/nsqc-lookupd-http.socket",
          "lib/systemd/system/nsqc-admin.service", "lib/systemd/system/nsqc-admin.socket")
LOOKUPD_ENABLED = "etc/systemd/system/multi-user.target.wants/nsqc-lookupd.service"
ENABLED = "etc/systemd/system/multi-user.target.wants/nsqc.service"

needs_lintian = pytest.mark.skipif(shutil.which("lintian") is None,
                                   reason="lintian is not here (apt-get install lintian); a release needs it")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """This version and a later one: of each, nsqc and the links with NSQ's names."""
    built(DIST / "nsqc-folder")
    out = tmp_path_factory.mktemp("debs")
    build = (sys.executable, ROOT / "packaging" / "deb.py", "--fast", "--out", out)
    return [run(*build).split(), run(*build, "--version", NEXT).split()]


@pytest.fixture(scope="module")
def packages(both):
    """nsqc of each."""
    return [main for main, _ in both]


class Root:
    """A root with its own dpkg database. Neither the machine nor its service manager is touched."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "var/lib/dpkg/info").mkdir(parents=True)
        (folder / "var/lib/dpkg/updates").mkdir()
        (folder / "var/lib/dpkg/status").touch()
        self.config = folder / "etc/nsqc/nsqc.cfg"
        self.state = folder / "var/lib/nsqc"

    def dpkg(self, *words) -> str:
        # Files of a package belong to root, which needs root or fakeroot.
        return run(*([] if os.getuid() == 0 else ["fakeroot"]), "dpkg", f"--root={self.folder}", "--force-script-chrootless", "--force-not-root",
                   "--force-depends", f"--log={self.folder}/log", *words,
                   env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})

    def status(self) -> str:
        status = (self.folder / "var/lib/dpkg/status").read_text()
        found = re.search(r"^Status: \S+ \S+ (\S+)$", status, re.MULTILINE)
        return found[1] if found else ""

    def has(self, *names) -> list[bool]:
        return [(self.folder / name).exists() or (self.folder / name).is_symlink() for name in names]

    def start(self, daemon):
        """Runs the unit's command in the state directory."""
        self.state.mkdir(parents=True, exist_ok=True)
        return daemon(command=(str(self.folder / "usr/bin/nsqc"), "serve", f"--config={self.config}"),
                      data_path=self.state)


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path / "root")


def test_install_run_upgrade_remove_purge(root, packages, daemon):
    root.dpkg("--install", packages[0])
    assert root.status() == "installed"
    assert all(root.has(*SYSTEM, ENABLED, "usr/share/man/man1/nsqc.1.gz", "usr/bin/nsqc",
                        "usr/share/nsqc/grafana/nsqc.json", "usr/share/nsqc/prometheus/nsqc.rules.yml"))
    assert not any(root.has("etc/systemd/system/sockets.target.wants")), "sockets are left to whoever wants them"
    assert not any(root.has(LOOKUPD_ENABLED)), "and so is the lookup server"
    node = root.start(daemon)
    node.connect().pub(TOPIC, b"x")
    assert node.stop() == 0

    root.config.write_text("max_rdy_count = 7\n" + root.config.read_text())
    (root.folder / ENABLED).unlink()
    root.dpkg("--install", packages[1])
    assert (root.status(), run("dpkg-deb", "-f", packages[1], "Version").strip()) == ("installed", NEXT)
    assert root.config.read_text().startswith("max_rdy_count = 7\n"), "what was edited is kept"
    assert not any(root.has(ENABLED)), "what was disabled is kept"
    node = root.start(daemon)
    assert node.http("GET", "/config/max_rdy_count") == (200, b"7")
    assert node.stats(TOPIC)["depth"] == 1
    assert node.stop() == 0

    root.dpkg("--remove", "nsqc")
    assert root.status() == "config-files"
    assert not any(root.has("usr/bin/nsqc", "usr/lib/nsqc", *SYSTEM))
    assert all(root.has("etc/nsqc/nsqc.cfg", "var/lib/nsqc/nsqd.dat"))

    root.dpkg("--purge", "nsqc")
    assert root.status() == ""
    assert not any(root.has("etc/nsqc", "var/lib/nsqc", ENABLED))


def test_nsqs_names_are_a_package_of_their_own(root, both):
    main, links = both[0]
    root.dpkg("--install", main, links)
    for name in ("nsqd", "nsqlookupd", "nsqadmin"):
        done = subprocess.run([root.folder / "usr/bin" / name, "--version"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, version_line(name) + "\n")
    for name in ORIGINALS:
        assert (root.folder / "usr/bin" / name).resolve() == (root.folder / "usr/lib/nsqc/nsqc").resolve()
        assert (root.folder / f"usr/share/man/man1/{name}.1.gz").exists()
    assert run("dpkg-deb", "-f", links, "Conflicts").strip() == "nsq, nsqd, nsqlookupd, nsqadmin"
    assert run("dpkg-deb", "-f", links, "Depends").strip() == f"nsqc (= {__version__})"
    root.dpkg("--remove", "nsqc-nsq-compat")
    assert not any(root.has("usr/bin/nsqd", "usr/bin/to_nsq")) and all(root.has("usr/bin/nsqc"))


def test_nsq_cannot_be_installed_beside_its_names(root, both, tmp_path):
    tree = tmp_path / "nsq"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("Package: nsq\nVersion: 1.3.0\nArchitecture: all\nMaintainer: x <x@x.invalid>\nDescription: x\n")
    run("dpkg-deb", "--root-owner-group", "--build", tree, tmp_path / "nsq.deb")
    root.dpkg("--install", *both[0])
    with pytest.raises(AssertionError):
        root.dpkg("--install", tmp_path / "nsq.deb")
    status = (root.folder / "var/lib/dpkg/status").read_text()
    assert not re.search(r"^Package: nsq\nStatus: \S+ \S+ (installed|unpacked)$", status, re.MULTILINE)


def test_what_is_in_it(packages, tmp_path):
    run("dpkg-deb", "-x", packages[0], tmp_path)
    assert run("dpkg-deb", "-f", packages[0], "Version").strip() == __version__
    assert {line.split()[1] for line in run("dpkg-deb", "-c", packages[0]).splitlines()} == {"root/root"}
    executable = tmp_path / "usr/bin/nsqc"
    assert __version__ in run(executable, "--version")
    assert b".TH NSQC 1" in gzip.decompress((tmp_path / "usr/share/man/man1/nsqc.1.gz").read_bytes()).upper()
    # The config file does not depend on where it was built, and is valid unchanged.
    config = (tmp_path / "etc/nsqc/nsqc.cfg").read_text()
    assert f'"{socket.gethostname()}"' not in config
    assert "ok, 0 options" in run(executable, "config", "check", tmp_path / "etc/nsqc/nsqc.cfg", cwd=tmp_path)
    # The package installs everything that the unit starts and reads.
    service = (tmp_path / "lib/systemd/system/nsqc.service").read_text()
    assert "ExecStart=/usr/bin/nsqc serve --config=/etc/nsqc/nsqc.cfg\n" in service
    service = (tmp_path / "lib/systemd/system/nsqc@.service").read_text()
    assert "ExecStart=/usr/bin/nsqc serve --config=/etc/nsqc/nsqc.cfg --instance=%i\n" in service
    service = (tmp_path / "lib/systemd/system/nsqc-lookupd.service").read_text()
    assert "ExecStart=/usr/bin/nsqc lookupd --config=/etc/nsqc/lookupd.cfg\n" in service
    assert f'"{socket.gethostname()}"' not in (tmp_path / "etc/nsqc/lookupd.cfg").read_text()
    service = (tmp_path / "lib/systemd/system/nsqc-admin.service").read_text()
    assert "ExecStart=/usr/bin/nsqc admin --config=/etc/nsqc/admin.cfg\n" in service
    assert "ok, 1 option" in run(executable, "config", "check", "--admin", tmp_path / "etc/nsqc/admin.cfg", cwd=tmp_path)


def test_the_lookup_server_of_the_package_runs(packages, tmp_path):
    run("dpkg-deb", "-x", packages[0], tmp_path)
    server = LookupServer(tmp_path / "log", f"--config={tmp_path}/etc/nsqc/lookupd.cfg",
                          command=(str(tmp_path / "usr/bin/nsqc"), "lookupd"))
    try:
        node = Node(server, "a.example")
        node.ok("REGISTER t")
        assert server.found("t") == ["a.example"]
        assert server.stop() == 0
    finally:
        server.close()


def test_the_scripts_are_plain_shell(packages, tmp_path):
    run("dpkg-deb", "-e", packages[0], tmp_path)
    for name in ("postinst", "prerm", "postrm"):
        script = tmp_path / name
        run("sh", "-n", script)
        assert script.stat().st_mode & 0o777 == 0o755
        # Unknown arguments are ignored, as the policy demands.
        run(script, "abort-something", env={**os.environ, "DPKG_ROOT": str(tmp_path)})


# Units whose files exist are active, or enabled.
SYSTEMCTL = """#!/bin/sh
for unit; do :; done
case "$*" in
*daemon-reload*) ;;
*list-units*)
    for path in /active/nsqc@*; do [ ! -e "$path" ] || echo "${path##*/} loaded active running x"; done ;;
*is-active*) [ -e "/active/$unit" ] && echo active || { echo inactive; exit 3; } ;;
*restart*) echo >"/active/$unit" ;;
esac
"""
INVOKE = """#!/bin/sh
action=$1
shift
for unit; do
    case $action in
    stop) rm -f "/active/$unit" ;;
    *) if [ -e "/active/$unit" ] || [ -e "/enabled/$unit" ]; then echo >"/active/$unit"; fi ;;
    esac
done
"""
HELPER = """#!/bin/sh
for unit; do :; done
case "$*" in *was-enabled*) [ -e "/enabled/$unit" ] ;; esac
"""


class System:
    """A root with the commands that the scripts call, and the states of units."""

    def __init__(self, folder, package):
        self.folder, self.scripts = folder, folder / "scripts"
        for name in ("bin", "dev", "active", "enabled", "run/systemd/system"):
            (folder / name).mkdir(parents=True)
        (folder / "dev/null").touch()
        run("dpkg-deb", "-e", package, self.scripts)
        programs = [shutil.which(name) for name in ("sh", "grep", "rm", "rmdir")]
        libraries = {line.split("=>")[-1].split()[0] for path in programs for line in run("ldd", path).splitlines() if "/" in line}
        for path in libraries:
            (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path.lstrip("/"))
        for path in programs:
            shutil.copy(path, folder / "bin")
        for name, text in (("systemctl", SYSTEMCTL), ("deb-systemd-invoke", INVOKE), ("deb-systemd-helper", HELPER)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def call(self, script, *words):
        run("chroot", self.folder, f"/scripts/{script}", *words, env={"PATH": "/bin:/usr/bin:/usr/sbin"})

    def set(self, kind, *units):
        for path in (self.folder / kind).iterdir():
            path.unlink()
        for unit in units:
            (self.folder / kind / unit).touch()

    def active(self):
        return {path.name for path in (self.folder / "active").iterdir()}


@pytest.mark.skipif(os.getuid() != 0, reason="chroot takes root")
def test_an_upgrade_restarts_what_runs(packages, tmp_path):
    """Enabled or not; what is stopped stays stopped. Also if dpkg gives the upgrade up."""
    system, services = System(tmp_path / "root", packages[0]), ("nsqc.service", "nsqc-lookupd.service", "nsqc-admin.service")
    system.set("enabled", services[0])
    system.call("postinst", "configure", "")
    assert system.active() == {services[0]}, "an installation starts what is enabled"
    for enabled, running in (((services[0],), services), (services, services[1:2]), ((), services[:1]), (services, ()),
                             ((), ("nsqc@1.service", "nsqc@2.service", services[2]))):
        for configured in (("configure", "0.0.9"), ("abort-upgrade", NEXT)):
            system.set("enabled", *enabled)
            system.set("active", *running)
            system.call("prerm", "upgrade", NEXT)
            assert not system.active()
            system.call("postinst", *configured)
            assert system.active() == set(running)
    # A socket starts a service while the files are changing: it is restarted.
    system.set("active")
    system.call("prerm", "upgrade", NEXT)
    (system.folder / "active" / services[2]).write_text("of the old files")
    system.call("postinst", "configure", "0.0.9")
    assert (system.folder / "active" / services[2]).read_text() == "\n"
    # An administrator's policy forbids starts.
    policy = system.folder / "usr/sbin/policy-rc.d"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    system.set("active", services[0])
    system.call("prerm", "upgrade", NEXT)
    system.call("postinst", "configure", "0.0.9")
    assert not system.active()
    # After a removal, an installation is not an upgrade.
    system.call("prerm", "remove")
    system.set("enabled", services[0])
    system.call("postinst", "configure", "0.0.9")
    assert system.active() == {services[0]}


@needs_lintian
def test_lintian_finds_no_fault(both):
    """Each override has its reason in packaging/deb/lintian-overrides."""
    told = run("lintian", "--allow-root", "--fail-on", "error,warning", *both[0])
    assert not [line for line in told.splitlines() if line.startswith(("E:", "W:"))]


@needs_lintian
def test_lintian_would_find_one(packages, tmp_path):
    run("dpkg-deb", "-R", packages[0], tmp_path / "tree")
    (tmp_path / "tree" / "usr/share/doc/nsqc/copyright").unlink()
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tmp_path / "tree", tmp_path / "bad.deb")
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", tmp_path / "bad.deb"], capture_output=True, text=True)
    assert done.returncode == 2 and "no-copyright-file" in done.stdout


def test_the_changelog_has_the_version_first(packages, tmp_path):
    for package, version in zip(packages, (__version__, NEXT), strict=True):
        run("dpkg-deb", "-x", package, tmp_path / version)
        text = gzip.decompress((tmp_path / version / "usr/share/doc/nsqc/changelog.gz").read_bytes()).decode()
        assert text.startswith(f"nsqc ({version}) unstable; urgency=medium\n\n  * ")
        assert f"nsqc ({__version__}) " in text


def test_the_pages_are_in_it_and_their_links_lead_somewhere(packages, tmp_path):
    run("dpkg-deb", "-x", packages[0], tmp_path)
    place = tmp_path / "usr/share/doc/nsqc"
    pages = sorted(str(path.relative_to(place)) for path in place.rglob("*.md"))
    assert pages == sorted(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "perf/RESULTS.md", *(
        f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
    assert (place / "docs/operations.md").read_text() == (ROOT / "docs/operations.md").read_text()
    for page in pages:
        text = (place / page).read_text()
        for link in [*LINK.findall(CODE.sub("", text)), *re.findall(r'src(?:set)?="([^"]+)"', text)]:
            if "://" not in link and (path := link.partition("#")[0]):
                assert (place / page).parent.joinpath(path).resolve().is_relative_to(place), f"{page}: {link}"
                assert ((place / page).parent / path).exists(), f"{page}: {link}"


def test_the_license_of_everything_inside_is_told(packages, tmp_path):
    run("dpkg-deb", "-x", packages[0], tmp_path)
    told = (tmp_path / "usr/share/doc/nsqc/copyright").read_text()
    folder = tmp_path / "usr/lib/nsqc/_internal"
    patterns = re.findall(r"usr/lib/nsqc/_internal/(\S+)", told)
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("nsqc/"):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), f"{name} has no license in packaging/deb/copyright"
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(tmp_path / "usr/lib/nsqc/nsqc")).open_embedded_archive("PYZ.pyz")
    packed = {name.split(".")[0] for name in archive.toc if not name.startswith("_sysconfigdata")}
    packed -= {*sys.stdlib_module_names, "nsqc", "unpacked"}
    assert not {name for name in packed if not re.search(rf"\b{name}\b", told)}
