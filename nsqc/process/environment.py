"""Environment variables through which a service manager addresses this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


class EnvironmentVariableError(Exception):
    """A variable cannot be used; the text is one line for the operator."""


def is_ours(pid: str) -> bool:
    """Whether a process id refers to this process.

    The one-file executable unpacks itself and runs the daemon as a child; the service manager knows only the parent.
    """
    return pid == str(os.getpid()) or (is_unpacked() and pid == str(os.getppid()))


def is_unpacked() -> bool:
    """Whether this process is the child of the one-file executable."""
    folder = getattr(sys, "_MEIPASS", "")
    return os.path.basename(folder).startswith("_MEI")


def number(environ: Mapping[str, str], name: str) -> int:
    """A variable's value; 0 if unset. Raises EnvironmentVariableError."""
    text = environ.get(name) or "0"
    if not text.isdecimal():
        raise EnvironmentVariableError(f"{name}={text} is not a number")
    return int(text)
