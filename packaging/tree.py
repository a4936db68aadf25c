"""Makes build/MODE/tree, where the compiled modules of a build other than the release lie, complete enough to run tests.

    python packaging/tree.py build/debug/tree

Beside the compiled modules, which setup.py writes there (build_ext --build-lib), every file of the packages is a link to
the source; so the release build in place, which other tests use at the same time, stays as it is. `cd build/debug/tree`
chooses the build, for pytest as for `python -m nsqc`. Links of files that are gone are removed, as are their modules.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nsqc", "tests")    # which may have compiled modules
WHOLE = ("docs", "packaging", "perf", "pyproject.toml", "README.md")
BUILT = {".so", ".pyc", ".html"}


def module_source(module: Path) -> str:
    """The name of the .pyx that a compiled module is made of: parser.cpython-311-x86_64-linux-gnu.so is parser.pyx."""
    return module.name.partition(".")[0] + ".pyx"


def link(target: Path, source: Path) -> None:
    """target becomes a link to source, unless it is that already."""
    if target.is_symlink() and target.readlink() == source:
        return
    target.unlink(missing_ok=True)
    target.symlink_to(source)


def mirror(source: Path, target: Path) -> None:
    """target gets a link to every file of source, folder by folder, and loses what source has no longer."""
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
    """The whole tree."""
    for package in PACKAGES:
        mirror(ROOT / package, tree / package)
    for name in WHOLE:
        link(tree / name, ROOT / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
