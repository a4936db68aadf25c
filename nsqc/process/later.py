"""Libraries imported on first use, since they cost memory and time.

Such an import runs on the loop. It takes a millisecond or two from the page cache, but a disk read otherwise. So the
kernel is asked to read the files ahead once the daemon listens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec


def read_ahead(packages: Iterable[str]) -> None:
    """Asks the kernel to read the packages' libraries ahead, without waiting."""
    for name in packages:
        spec = find_spec(name)
        for folder in spec.submodule_search_locations or () if spec else ():
            # If a file cannot be read, the import will fail and report it.
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".so"):
                        _advise(entry.path)


def _advise(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
