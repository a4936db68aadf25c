"""Compiles the extensions and shows the progress: it takes minutes.

    python packaging/compile.py LOG [DIRECTORY]

The modules go into DIRECTORY; without one, beside their sources.

The compilers' output goes to LOG, which is printed on failure and removed on success. On a terminal the progress is
one changing line; in a pipe a line every few seconds. NSQC_BUILD selects the build.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

EVERY_S = 5.0  # between two lines in a pipe
COMMAND = ("setup.py", "--quiet", "build_ext", "--parallel", "2")


class Progress:
    """Shows steps as they arrive: `STAGE DONE TOTAL`, where setup.py has a word for each stage."""

    def __init__(self) -> None:
        self._changes = sys.stdout.isatty()
        self._began = time.monotonic()
        self._said = 0.0
        self._stage = ""

    def show(self, line: str) -> None:
        """One step."""
        stage, done, total = line.split()
        text = f"nsqc: {stage.replace('-', ' ')}, {done} of {total} modules ({time.monotonic() - self._began:.0f} s)"
        now = time.monotonic()
        if self._changes:
            print(f"\r{text}\x1b[K", end="\n" if done == total else "", flush=True)
        elif stage != self._stage or done == total or now - self._said >= EVERY_S:
            self._said = now
            print(text, flush=True)
        self._stage = stage


def main(log: Path, *directory: str) -> int:
    """Returns the build's exit code."""
    print("nsqc: compiling; the first time takes some minutes, later ones what has changed", flush=True)
    place = ("--build-lib", *directory) if directory else ("--inplace",)
    there, here = os.pipe()
    with log.open("wb") as out:
        build = subprocess.Popen([sys.executable, *COMMAND, *place], stdout=out, stderr=subprocess.STDOUT,
                                 pass_fds=(here,), env={**os.environ, "NSQC_PROGRESS": str(here)})
    os.close(here)
    progress = Progress()
    with open(there, encoding="utf-8") as steps:
        for step in steps:
            progress.show(step)
    if build.wait():
        print(f"\nnsqc: compiling failed; {log} has what follows", flush=True)
        sys.stdout.buffer.write(log.read_bytes())
        return 1
    log.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
