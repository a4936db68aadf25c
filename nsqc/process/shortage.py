"""Starts that a limit of the system prevents, reported in one line."""

from __future__ import annotations

import errno
import resource

# A server needs more even before it opens a file. With less, what fails, and whether Python can still say so, depends
# on the page.
LEAST_ADDRESS_BYTES = 45_000_000
MEMORY = "the limit of memory (ulimit -v, memory.max)"
FILES = "the limit of open files (ulimit -n)"
LIMITS = {errno.ENOMEM: MEMORY, errno.EAGAIN: "the limit of processes (ulimit -u, pids.max)", errno.EMFILE: FILES,
          errno.ENFILE: "the limit of open files of the system (fs.file-max)"}
# The loader's, for compiled modules. It has one text for a lack of memory and for files that may not be executed.
NOT_MAPPED = "failed to map segment"
NO_MEMORY = ("annot allocate memory", "annot create shared object descriptor", "annot enable executable stack")
TOO_MANY_FILES = "Too many open files"


def too_small() -> str | None:
    """The limit that no server can start under, and the remedy; None: there is none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESS_BYTES:
        return None
    return f"the limit of memory, {limit:,} bytes (ulimit -v), is too small for a server; raise it, to 100 MB or more"


def shortage(error: BaseException) -> str | None:
    """The missing resource, and which limit to raise; None: the error has another reason."""
    text = str(error)
    if isinstance(error, MemoryError):
        return f"out of memory; raise {MEMORY}"
    if isinstance(error, OSError):
        limit = LIMITS.get(error.errno or 0)
        return f"{text}; raise {limit}" if limit else None
    if not isinstance(error, ImportError):
        return None
    if NOT_MAPPED in text:
        return f"{text}: raise {MEMORY}, or move it from a file system that is mounted noexec"
    if any(part in text for part in NO_MEMORY):
        return f"{text}: raise {MEMORY}"
    return f"{text}: raise {FILES}" if TOO_MANY_FILES in text else None
