"""The C programs, compiled on demand into build/perf: the load client, the floors, the library that slows a disk."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "build" / "perf"
FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
CLIENT = sorted((HERE / "client").glob("*.c"))
TRANSPORTS = {HERE / "client" / f"{name}.c" for name in ("snappy", "stream", "transports")}


class BuildError(Exception):
    """The compiler is missing or failed."""


def client() -> Path:
    """The load client; needs no library. Raises BuildError."""
    return program("client", [source for source in CLIENT if source not in TRANSPORTS])


def client_with_transports() -> Path:
    """The load client with its modes for TLS and compression. Raises BuildError."""
    try:
        return program("client-transports", CLIENT, "-DWITH_TRANSPORTS", "-lssl", "-lcrypto", "-lz")
    except BuildError as error:
        if "openssl/" in str(error) or "zlib.h" in str(error):
            raise BuildError("the client needs OpenSSL's and zlib's headers (Debian: apt-get install libssl-dev "
                             "zlib1g-dev)") from None
        raise


def floor() -> Path:
    """The server that shows the limit of loopback and one core; with --copy it stores bodies. Raises BuildError."""
    return program("floor", sorted((HERE / "floor").glob("*.c")))


def rivals() -> Path:
    """The load client of the comparison, which speaks each rival's protocol. Raises BuildError."""
    return program("rivals", [*sorted((HERE / "rivals").glob("*.c")), HERE / "client/conn.c", HERE / "client/report.c"])


def slow_disk() -> Path:
    """A library to preload, which slows the disk and logs the calls to it. Raises BuildError."""
    return program("slowdisk.so", [HERE / "stalls" / "slowdisk.c"], "-shared", "-fPIC", "-ldl")


def program(name: str, sources: list[Path], *options: str) -> Path:
    """build/perf/name, compiled from sources if it is older than they or any header are. Raises BuildError."""
    made = OUT / name
    newest = max(path.stat().st_mtime for path in [*sources, *HERE.glob("*/*.h")])
    if made.exists() and made.stat().st_mtime >= newest:
        return made
    OUT.mkdir(parents=True, exist_ok=True)
    fresh = made.with_name(f"{name}.{os.getpid()}")
    command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, "-o", str(fresh), *map(str, sources), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}; set CC to a C compiler") from None
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}:\n{done.stderr.strip()}")
    fresh.rename(made)
    return made
