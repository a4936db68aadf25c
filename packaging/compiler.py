"""A C compiler for a glibc older than this machine's: Zig's, which comes as a Python package.

Its output requires no symbol that is missing in glibc of the version below.
"""

import os
import platform
from pathlib import Path

ROOT = Path(__file__).parent.parent
# RHEL 8 and Debian 10 have it; it is also the oldest supported by the wheels of all libraries.
GLIBC = (2, 28)
PLATFORM = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
# C libraries do not survive Zig's extra checks for undefined behaviour and reproducibility.
FLAGS = "-target {machine}-linux-gnu.{major}.{minor} -fno-sanitize=undefined -Wno-date-time"
TOOLS = {"CC": ("cc", FLAGS), "CXX": ("c++", FLAGS), "AR": ("ar", ""), "RANLIB": ("ranlib", "")}


def environment(folder: Path = ROOT / "build" / "zig", machine: str = platform.machine()) -> dict[str, str]:
    """The variables for third-party build systems. Writes a script for each tool into the folder. machine: the target
    processor."""
    import ziglang

    zig = Path(ziglang.__file__).parent / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    for name, form in TOOLS.values():
        flags = form.format(machine=machine, major=GLIBC[0], minor=GLIBC[1])
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{zig}" {name} {flags} "$@"\n')
        script.chmod(0o755)
    given = {name: value for name, value in os.environ.items() if name not in ("CFLAGS", "CPPFLAGS", "LDFLAGS")}
    return {**given, **{variable: str(folder / name) for variable, (name, _) in TOOLS.items()},
            "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"), "ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
