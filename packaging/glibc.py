"""The least glibc that files run on: the highest GLIBC_ symbol version any of them asks for.

    python packaging/glibc.py dist/nsqc-folder
"""

import re
import sys
from pathlib import Path

# Names of symbol versions stand in the string table; none of these files defines any of glibc's.
VERSION = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")
ELF = b"\x7fELF"


def needed(path: Path) -> tuple[int, int]:
    """Of one file; (0, 0) where it is no ELF file or needs none."""
    data = path.read_bytes()
    if not data.startswith(ELF):
        return 0, 0
    return max(((int(major), int(minor)) for major, minor in VERSION.findall(data)), default=(0, 0))


def least(folder: Path) -> tuple[tuple[int, int], list[str]]:
    """Of all files in a folder, and the names of those that need as much."""
    found = {path: needed(path) for path in folder.rglob("*") if path.is_file()}
    highest = max(found.values())
    return highest, sorted(path.name for path, version in found.items() if version == highest)


if __name__ == "__main__":
    (major, minor), names = least(Path(sys.argv[1]))
    print(f"needs glibc {major}.{minor} or later (because of {', '.join(names)})")
