"""The C programs of the bench, compiled on demand. Each raises BuildError where that fails."""

from __future__ import annotations

from pathlib import Path

from perf.load.build import program

HERE = Path(__file__).resolve().parent
CONN = HERE.parent / "load" / "conn.c"


def ping() -> Path:
    """A /ping each 2 ms on a kept connection."""
    return program("ping", [HERE / "ping.c", CONN])


def beats() -> Path:
    """Healthy subscribers that answer heartbeats."""
    return program("beats", [HERE / "beats.c", CONN])


def strange() -> Path:
    """Clients that are allowed and unkind."""
    return program("strange", [HERE / "strange.c", CONN])


def slow_disk() -> Path:
    """A library to preload, which makes the disk slow and notes the calls to it."""
    return program("slowdisk.so", [HERE / "slowdisk.c"], "-shared", "-fPIC", "-ldl")
