"""Builds the same two packages as RPM, with rpmbuild, which Debian has as well (package rpm).

    python packaging/rpm.py [--version 1.2.3] [--out dist] [--fast]
"""

import argparse
import datetime
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import deb
from glibc import least

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "rpm"
SCRIPTS = ROOT / "packaging" / "rpm"
# RPM distributions' paths that differ from Debian's.
MOVED = {"lib/systemd/system": "usr/lib/systemd/system",
         "usr/share/zsh/vendor-completions": "usr/share/zsh/site-functions"}
NOT_HERE = ("usr/share/lintian", "usr/share/doc/nsqc/changelog.gz")
CONFIG_FILES = deb.CONFIGS
MACROS = {
    "_topdir": WORK, "debug_package": "%{nil}", "__os_install_post": "%{nil}", "_build_id_links": "none",
    # Packages of the same files have the same bytes on every build machine.
    "_buildhost": "nsqc.invalid", "use_source_date_epoch_as_buildtime": "1", "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
}
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: MIT
Group: System Environment/Daemons
Packager: {packager}
{relations}
AutoReqProv: no

%description
{description}

{scripts}

%files
%defattr(-,root,root,-)
{files}

%changelog
{changes}
"""
SUMMARY = "Message queue daemon, lookup server, admin page and tools for NSQ"
COMPAT_SUMMARY = "Links by which nsqc is nsqd, nsqlookupd, nsqadmin and NSQ's tools"


def described(control: str) -> str:
    """The description of a Debian control file."""
    return textwrap.dedent(control.partition("Description: ")[2].partition("\n")[2])


def relations(name: str, version: str, tree: Path) -> str:
    """Dependencies and conflicts of the package."""
    if name == deb.COMPAT:
        return f"BuildArch: noarch\nRequires: nsqc = {version}\nConflicts: nsq"
    glibc, _ = least(tree / "usr/lib/nsqc")
    # Libraries by their capability names: distributions name the packages differently.
    libraries = (f"{name}()(64bit)" for name in ("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"))
    needed = (f"glibc >= {'.'.join(map(str, glibc))}", *libraries, "systemd")
    return "\n".join([*(f"Requires: {one}" for one in needed), "Recommends: ca-certificates"])


def scripts() -> str:
    """The scripts for installation and removal."""
    return "\n\n".join(f"%{path.name}\n{path.read_text().rstrip()}" for path in sorted(SCRIPTS.iterdir()))


def listed(tree: Path) -> str:
    """The %files section: our own folders, files, and their marks as configuration or documentation."""
    lines = []
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_dir() and not path.is_symlink():
            if name.startswith(("usr/lib/nsqc", "etc/nsqc", "usr/share/nsqc", f"{deb.DOC}")):
                lines.append(f'%dir "/{name}"')
            continue
        kind = "%config(noreplace) " if name in CONFIG_FILES else "%doc " if name.startswith(deb.DOC) else ""
        lines.append(f'{kind}"/{name}"')
    return "\n".join(lines)


def changes(version: str) -> str:
    """The latest entry of the changelog in RPM's form."""
    text = deb.changelog((ROOT / "CHANGELOG.md").read_text(), version)
    rest = text.partition("\n\n")[2]
    body, _, sign = rest.partition("\n\n -- ")
    day = datetime.datetime.strptime(re.search(r"  (.+)$", sign.splitlines()[0])[1], "%a, %d %b %Y %H:%M:%S %z")
    body = re.sub(r"^  \* ", "- ", body, flags=re.MULTILINE).replace("%", "%%")
    return f"* {day:%a %b %d %Y} {deb.MAINTAINER} - {version}-1\n{re.sub('^    ', '  ', body, flags=re.MULTILINE)}"


def fill(tree: Path, version: str) -> None:
    """The files of nsqc's package."""
    deb.fill(tree, version)
    for old, new in MOVED.items():
        (tree / new).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(tree / old, tree / new)
    (tree / "lib/systemd").rmdir()
    (tree / "lib").rmdir()
    for name in NOT_HERE:
        path = tree / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def pack(name: str, version: str, tree: Path, out: Path, fast: bool) -> Path:
    """One package from its files."""
    is_compat = name == deb.COMPAT
    spec = WORK / f"{name}.spec"
    spec.write_text(SPEC.format(
        name=name, version=version, packager=deb.MAINTAINER, summary=COMPAT_SUMMARY if is_compat else SUMMARY,
        relations=relations(name, version, tree), scripts="" if is_compat else scripts(),
        description=described(deb.COMPAT_CONTROL if is_compat else deb.CONTROL), files=listed(tree),
        changes=changes(version)))
    macros = MACROS | {"_binary_payload": "w1.gzdio" if fast else "w6.xzdio", "_rpmdir": WORK / "rpms"}
    words = [part for macro, value in macros.items() for part in ("--define", f"{macro} {value}")]
    done = subprocess.run(["rpmbuild", "-bb", "--quiet", *words, "--buildroot", tree, "--noclean", spec],
                          capture_output=True, text=True,
                          env={**os.environ, "SOURCE_DATE_EPOCH": str(deb.time_of_tree()), "LC_ALL": "C.UTF-8"})
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nno RPM package: rpmbuild failed")
    made, = (WORK / "rpms").rglob(f"{name}-{version}-1.*.rpm")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(made, out / made.name))


def build(version: str, out: Path, fast: bool) -> list[Path]:
    """Writes the packages. Returns their paths."""
    shutil.rmtree(WORK, ignore_errors=True)
    paths = []
    for name, step in (("nsqc", fill), (deb.COMPAT, deb.links)):
        tree = WORK / "trees" / name
        tree.mkdir(parents=True)
        step(tree, version)
        paths.append(pack(name, version, tree, out, fast))
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default=deb.version_of_tree())
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--fast", action="store_true", help="packed loosely, for tests")
    arguments = parser.parse_args()
    if shutil.which("rpmbuild") is None:
        raise SystemExit("an RPM package needs rpmbuild (Debian: apt-get install rpm)")
    print(*build(arguments.version, arguments.out, arguments.fast), sep="\n")
