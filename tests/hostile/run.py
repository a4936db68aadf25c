"""Decodes hostile files in a process of its own: python -m tests.hostile.run TARGET FIRST COUNT.

Each case has a number, which is its seed, and is printed before it begins: the last one is that of a crash, a hang or an
exception. A case has CPU_SECONDS of processor time, and the process MEMORY more than it begins with.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

CPU_SECONDS = 20
MEMORY = 1 << 30
MEMORY_FOLDER = "/dev/shm"


def limit_memory() -> None:
    """Not for AddressSanitizer, which reserves terabytes."""
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, -1))


def main(target: str, first: int, count: int) -> None:
    faulthandler.enable()
    module = importlib.import_module(f"tests.hostile.{target}")
    # In memory: writers sync.
    home = Path(tempfile.mkdtemp(prefix="nsqc-hostile-", dir=MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None))
    try:
        made = home / "made"
        made.mkdir()
        files = module.make(made)
        limit_memory()
        for case in range(first, first + count):
            os.write(1, b"%d\n" % case)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)       # ends the process
            rng = random.Random(case)
            changed = dict(files)
            for _ in range(rng.choice([1, 1, 2, 4])):
                module.change(rng, changed)
            decode(module, rng, home, changed)
            signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def decode(module, rng: random.Random, home: Path, files: dict[str, bytes]) -> None:
    folder, scratch = home / "data" / "t.log", home / "scratch"
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    scratch.mkdir()
    module.decode(rng, folder, scratch)
    shutil.rmtree(home / "data", ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
