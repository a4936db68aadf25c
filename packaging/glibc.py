"""The lowest glibc that files run on: the highest GLIBC_ symbol version required by any of them.

    python packaging/glibc.py [--promised] dist/nsqc-folder

--promised: exits with 1 if a file needs more than packages promise.
"""

import argparse
import re
from pathlib import Path

from compiler import GLIBC

# The string table has the names of symbol versions; none of these files defines any of glibc's.
VERSION = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")
ELF = b"\x7fELF"


def needed(path: Path) -> tuple[int, int]:
    """The version one file needs; (0, 0) if it is not an ELF file or needs none."""
    data = path.read_bytes()
    if not data.startswith(ELF):
        return 0, 0
    return max(((int(major), int(minor)) for major, minor in VERSION.findall(data)), default=(0, 0))


def least(folder: Path) -> tuple[tuple[int, int], list[str]]:
    """The highest version needed by the files in a folder, and the names of those that need it."""
    versions = {path: needed(path) for path in folder.rglob("*") if path.is_file()}
    highest = max(versions.values(), default=(0, 0))
    return highest, sorted(path.name for path, version in versions.items() if version == highest)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promised", action="store_true")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    highest, names = least(arguments.folder)
    if highest == (0, 0):
        raise SystemExit(f"{arguments.folder} has no file that needs glibc")
    print(f"needs glibc {highest[0]}.{highest[1]} or later (because of {', '.join(names)})")
    if arguments.promised and highest > GLIBC:
        raise SystemExit(f"{GLIBC[0]}.{GLIBC[1]} is promised")


if __name__ == "__main__":
    main()
