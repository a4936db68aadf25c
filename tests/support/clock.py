"""A wall clock that tests set, for daemons."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile long *shift_s;
__attribute__((constructor)) static void find(void) {
    int file = open(getenv("SHIFTED_BY"), O_RDONLY);
    shift_s = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME && shift_s) now->tv_sec += *shift_s;
    return answer;
}
"""


class ShiftedClock:
    """environment: of a daemon with this clock, which set() sets at any time."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "shifted.c", folder / "shifted.so"
        source.write_text(_SOURCE)
        subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self._file = folder / "shifted_by"
        self._file.write_bytes(bytes(8))
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "SHIFTED_BY": str(self._file)}

    def set(self, ahead_s: int) -> None:
        """Sets it this many seconds ahead of the real time."""
        with self._file.open("r+b") as file:
            file.write(ahead_s.to_bytes(8, "little", signed=True))
