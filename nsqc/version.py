"""The version line."""

from __future__ import annotations

import sys

from nsqc import NSQD_VERSION, __version__


def version_line(name: str = "nsqd") -> str:
    """In nsqd's form, with the nsqd version that is kept to: scripts read it from the second word."""
    return f"{name} v{NSQD_VERSION} (built w/nsqc-{__version__}-python{sys.version.split()[0]})"
