"""Completes build/MODE/tree, which has the compiled modules of a non-release build, for running tests in it.

    python packaging/tree.py build/debug/tree

setup.py writes the modules there (build_ext --build-lib); every other file of the packages becomes a link to its
source. The in-place release build, which other tests use at the same time, stays unchanged. `cd build/debug/tree`
selects the build, for pytest as for `python -m nsqc`. Links to deleted files are removed, and so are modules of deleted
sources.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nsqc", "tests")    # may have compiled modules
WHOLE = ("docs", "packaging", "perf", "pyproject.toml", "README.md")
BUILT = {".so", ".pyc", ".html"}


def module_source(module: Path) -> str:
    """The .pyx of a compiled module: parser.pyx for parser.cpython-311-x86_64-linux-gnu.so."""
    return module.name.partition(".")[0] + ".pyx"


def link(target: Path, source: Path) -> None:
    """Makes target a link to source unless it already is."""
    if target.is_symlink() and target.readlink() == source:
        return
    target.unlink(missing_ok=True)
    target.symlink_to(source)


def mirror(source: Path, target: Path) -> None:
    """Links every file of source into target, folder by folder, and removes files that source no longer has."""
    target.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in os.scandir(source)}
    for entry in list(target.iterdir()):
        needed = module_source(entry) if entry.suffix == ".so" else entry.name
        if entry.name == "__pycache__" or needed in names:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for name in names - {"__pycache__"}:
        path = source / name
        if path.is_dir() and not path.is_symlink():
            mirror(path, target / name)
        elif path.suffix not in BUILT:
            link(target / name, path)


def main(tree: Path) -> None:
    """Links packages file by file, everything else as it is."""
    for package in PACKAGES:
        mirror(ROOT / package, tree / package)
    for name in WHOLE:
        link(tree / name, ROOT / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
