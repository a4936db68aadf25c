"""Compiles the load client and the floor server on demand, into build/perf."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "build" / "perf"
FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
FLOOR = "floor.c"


class BuildError(Exception):
    """The compiler is missing or refused."""


def client() -> Path:
    """The load client, compiled if need be. Raises BuildError."""
    return program("client", sorted(path for path in HERE.glob("*.c") if path.name != FLOOR))


def floor() -> Path:
    """The floor server, compiled if need be. Raises BuildError."""
    return program("floor", [HERE / FLOOR])


def program(name: str, sources: list[Path], *libraries: str) -> Path:
    """build/perf/name, made of sources where it is older than they are. Raises BuildError."""
    made = OUT / name
    newest = max(path.stat().st_mtime for path in [*sources, *sources[0].parent.glob("*.h")])
    if made.exists() and made.stat().st_mtime >= newest:
        return made
    OUT.mkdir(parents=True, exist_ok=True)
    fresh = made.with_name(f"{name}.{os.getpid()}")
    command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, "-o", str(fresh), *map(str, sources), *libraries]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}; set CC to a C compiler") from None
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}:\n{done.stderr.strip()}")
    fresh.rename(made)
    return made
