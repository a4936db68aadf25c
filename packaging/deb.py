"""Builds the Debian packages with dpkg-deb: nsqc, the folder form of the executable, which has nothing to unpack at
startup; and nsqc-nsq-compat, links with the names of NSQ's programs.

    python packaging/deb.py [--version 1.2.3] [--out dist] [--fast]
"""

import argparse
import datetime
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

from glibc import least

ROOT = Path(__file__).parent.parent
EXECUTABLE = ROOT / "dist" / "nsqc-folder" / "nsqc"
UNITS = "lib/systemd/system"
CONFIG = "etc/nsqc/nsqc.cfg"
LOOKUPD_CONFIG = "etc/nsqc/lookupd.cfg"
ADMIN_CONFIG = "etc/nsqc/admin.cfg"
CONFIGS = (CONFIG, LOOKUPD_CONFIG, ADMIN_CONFIG)
# It starts with no fewer nodes than one.
ADMIN_NODES = '#nsqd_http_addresses = []\n', 'nsqd_http_addresses = ["127.0.0.1:4151"]\n'
COMPLETIONS = {"bash": "usr/share/bash-completion/completions/nsqc", "zsh": "usr/share/zsh/vendor-completions/_nsqc",
               "fish": "usr/share/fish/vendor_completions.d/nsqc.fish"}
SCRIPTS = ("postinst", "prerm", "postrm")
# Installed with the source's layout, so that links between them work. Includes linked files.
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/*.svg", "docs/*.webp", "perf/RESULTS.md",
         "packaging/grafana/nsqc.json", "packaging/prometheus/nsqc.rules.yml", "packaging/compose/*",
         "packaging/kubernetes/*", "packaging/helm/nsqc/**/*")
DOC = "usr/share/doc/nsqc"
# Links to source files, which are not installed.
SOURCE = re.compile(r"\[([^\]]*)\]\(\.\./nsqc/[^)]*\)")
MAINTAINER = "The nsqc project <nsqc@nsqc.invalid>"
CONTROL = """\
Package: nsqc
Version: {version}
Section: net
Priority: optional
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kilobytes}
Depends: libc6 (>= {glibc}), libgcc-s1 | libgcc1, libstdc++6, zlib1g, init-system-helpers (>= 1.54~)
Recommends: ca-certificates
Description: message queue daemon, lookup server, admin page and tools for NSQ
 nsqc speaks nsqd's TCP protocol and HTTP API, takes its flags and config
 file and keeps its files. It sends messages at once instead of holding
 them back for up to 250 ms. The lookup server, in place of nsqlookupd, and
 the admin page, in place of nsqadmin, are included as units of their own,
 which are not enabled.
"""


# Links under which the executable acts as NSQ's program of that name.
COMPAT = "nsqc-nsq-compat"
PROGRAMS = ("nsqd", "nsqlookupd", "nsqadmin", "nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq",
            "to_nsq")
COMPAT_CONTROL = """\
Package: {name}
Version: {version}
Section: net
Priority: optional
Architecture: all
Maintainer: {maintainer}
Depends: nsqc (= {version})
Conflicts: nsq, nsqd, nsqlookupd, nsqadmin
Replaces: nsq
Installed-Size: 8
Description: nsqd, nsqlookupd and NSQ's tools by their own names
 Links to nsqc, which takes exactly the flags of the program that it is
 called as. Scripts and units for NSQ work unchanged.
"""


def output(*words: str) -> str:
    """The executable's output."""
    return subprocess.run([EXECUTABLE, *words], check=True, capture_output=True, text=True).stdout


def config_file(*words: str) -> str:
    """For all machines: defaults derived from the host name are left empty."""
    return re.sub(r"^#(id|broadcast_address) = .*$", r"#\1 =", output("config", "init", *words), flags=re.MULTILINE)


def dpkg_architecture() -> str:
    """Debian's name of this machine's processor."""
    return subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()


def version_of_tree() -> str:
    """The version, from its single source."""
    return re.search(r'^__version__ = "(.+)"$', (ROOT / "nsqc" / "__init__.py").read_text(), re.MULTILINE)[1]


def time_of_tree() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given:
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def write(tree: Path, name: str, data: str | bytes, mode: int = 0o644) -> None:
    """A file of the package."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)


def zipped(text: str | bytes) -> bytes:
    """A page in Debian's form: best compression, no timestamp."""
    return gzip.compress(text.encode() if isinstance(text, str) else text, 9, mtime=0)


def changelog(text: str, version: str) -> str:
    """CHANGELOG.md in Debian's form, one entry per version; the package's version first, even without an entry."""
    entries = [(number, date, body) for number, date, body in
               re.findall(r"^## \[(.+?)\] - (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)]
    if not entries or entries[0][0] != version:
        entries.insert(0, (version, "unreleased", "- A build between releases.\n"))
    return "\n".join(entry(*fields) for fields in entries)


def entry(version: str, date: str, body: str) -> str:
    """The entry of one version, with today's date if it has none yet."""
    released = re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    day = datetime.date.fromisoformat(date) if released else datetime.datetime.now(datetime.UTC).date()
    points = []
    for point in re.findall(r"^- (.*(?:\n {2}.*)*)", body, re.MULTILINE):
        plain = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", point).replace("`", "")
        points.append(textwrap.fill(plain, 78, initial_indent="  * ", subsequent_indent="    ",
                                    break_long_words=False, break_on_hyphens=False))
    return (f"nsqc ({version}) unstable; urgency=medium\n\n" + "\n".join(points) +
            f"\n\n -- {MAINTAINER}  {day:%a, %d %b %Y} 00:00:00 +0000\n")


def instances(unit: str) -> str:
    """The daemon's unit as a template for several on one machine: %i is the number of each."""
    for one, each in (("a message queue daemon for NSQ clients", "a message queue daemon for NSQ clients, instance %i"),
                      ("nsqc.cfg", "nsqc.cfg --instance=%i"), ("Directory=%S/nsqc", "Directory=%S/nsqc-%i"),
                      ("StateDirectory=nsqc", "StateDirectory=nsqc-%i")):
        assert unit.count(f"{one}\n") == 1, one
        unit = unit.replace(f"{one}\n", f"{each}\n")
    return unit


def fill(tree: Path, version: str) -> None:
    """All installed files."""
    shutil.copytree(EXECUTABLE.parent, tree / "usr/lib/nsqc", symlinks=True)
    for path in (tree / "usr/lib/nsqc").rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.name == "nsqc" else 0o644)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/nsqc").symlink_to("../lib/nsqc/nsqc")
    for path in sorted([*(ROOT / "packaging").glob("*.service"), *(ROOT / "packaging").glob("*.socket")]):
        write(tree, f"{UNITS}/{path.name}", path.read_bytes())
    write(tree, f"{UNITS}/nsqc@.service", instances((ROOT / "packaging/nsqc.service").read_text()).encode())
    for name in ("grafana/nsqc.json", "prometheus/nsqc.rules.yml"):
        write(tree, f"usr/share/nsqc/{name}", (ROOT / "packaging" / name).read_bytes())
    write(tree, CONFIG, config_file())
    write(tree, LOOKUPD_CONFIG, config_file("--lookupd"))
    write(tree, ADMIN_CONFIG, config_file("--admin").replace(*ADMIN_NODES))
    write(tree, "usr/share/man/man1/nsqc.1.gz", zipped(output("man")))
    for shell, name in COMPLETIONS.items():
        write(tree, name, output("completion", shell))
    for path in (path for page in PAGES for path in sorted(ROOT.glob(page)) if path.is_file()):
        data = path.read_bytes()
        page = SOURCE.sub(r"\1", data.decode()) if path.suffix == ".md" else data
        write(tree, f"{DOC}/{path.relative_to(ROOT)}", page)
    write(tree, f"{DOC}/copyright", (ROOT / "packaging/deb/copyright").read_bytes())
    write(tree, f"{DOC}/changelog.gz", zipped(changelog((ROOT / "CHANGELOG.md").read_text(), version)))
    write(tree, "usr/share/lintian/overrides/nsqc", (ROOT / "packaging/deb/lintian-overrides").read_bytes())
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def describe(tree: Path, version: str) -> None:
    """DEBIAN/: the control files."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    glibc, _ = least(tree / "usr/lib/nsqc")
    write(tree, "DEBIAN/control", CONTROL.format(
        version=version, maintainer=MAINTAINER, architecture=dpkg_architecture(), glibc=".".join(map(str, glibc)),
        kilobytes=sum(-(-path.stat().st_size // 1024) for path in files)))
    write(tree, "DEBIAN/conffiles", "".join(f"/{name}\n" for name in CONFIGS))
    write(tree, "DEBIAN/md5sums", "".join(
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files
        if str(path.relative_to(tree)) not in CONFIGS))
    for script in SCRIPTS:
        write(tree, f"DEBIAN/{script}", (ROOT / "packaging" / "deb" / script).read_bytes(), 0o755)


def links(tree: Path, version: str) -> None:
    """All files of the package of links."""
    for name in PROGRAMS:
        for place, target in ((f"usr/bin/{name}", "nsqc"), (f"usr/share/man/man1/{name}.1.gz", "nsqc.1.gz")):
            (tree / place).parent.mkdir(parents=True, exist_ok=True)
            (tree / place).symlink_to(target)


def describe_links(tree: Path, version: str) -> None:
    """Its control file, and files that Debian requires in each package."""
    place = f"usr/share/doc/{COMPAT}"
    write(tree, f"{place}/copyright", (ROOT / "packaging/deb/copyright").read_bytes())
    text = changelog((ROOT / "CHANGELOG.md").read_text(), version)
    write(tree, f"{place}/changelog.gz", zipped(re.sub(r"^nsqc \(", f"{COMPAT} (", text, flags=re.MULTILINE)))
    write(tree, "DEBIAN/control", COMPAT_CONTROL.format(name=COMPAT, version=version, maintainer=MAINTAINER))


def build(version: str, out: Path, fast: bool) -> list[Path]:
    """Writes the packages. Returns their paths."""
    paths = []
    for name, steps in (("nsqc", (fill, describe)), (COMPAT, (links, describe_links))):
        tree = ROOT / "build" / "deb" / name
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        for step in steps:
            step(tree, version)
        paths.append(pack(tree, out, fast))
    return paths


def pack(tree: Path, out: Path, fast: bool) -> Path:
    """One package from its files."""
    out.mkdir(parents=True, exist_ok=True)
    packing = ["-Zgzip", "-z1"] if fast else ["-Zxz"]
    done = subprocess.run(["dpkg-deb", "--root-owner-group", *packing, "--build", tree, out],
                          check=True, capture_output=True, text=True,
                          env={**os.environ, "SOURCE_DATE_EPOCH": str(time_of_tree())})
    return Path(re.search(r"in '(.+)'\.$", done.stdout)[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default=version_of_tree())
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--fast", action="store_true", help="packed loosely, for tests")
    arguments = parser.parse_args()
    print(*build(arguments.version, arguments.out, arguments.fast), sep="\n")
