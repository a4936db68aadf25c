"""File descriptors: the limit of this process, and how clients and files share it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

# ====================================================================== descriptors
# File descriptors: the limit of this process, and how clients and files share it.

# Reserved for fsync workers, metadata, nsqlookupd and auth servers: at most this, or an eighth of a small limit.
_MOST_RESERVED = 64
_QUEUES = 8  # threads that read, write and sync queue files, one file each
_FOR_ONE_CLIENT = 3  # the client, a file to read and a file to write
_FOLDER = "/proc/self/fd"
_QUEUE_FILE = ".dat"
_USUAL = 32  # open in an idle daemon; for systems without /proc


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard limit, as Go's runtime does, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # The system may have a lower limit: then keep the soft limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """The current soft limit; an operator may change it while the process runs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def for_clients(most: int, connected: int) -> int:
    """Descriptors of `most` available to clients after queues and files; connected: current clients.

    At least one if any are free, even if the limit is too low for all shares; otherwise 0 or less.
    """
    left = most - _others() + connected
    return max(left - min(_QUEUES, most // 4) - min(_MOST_RESERVED, most // 8), min(1, left - _FOR_ONE_CLIENT))


def _others() -> int:
    """Open descriptors, except data files, which are counted with the queues."""
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return _USUAL
    count = 0
    for name in names:
        try:
            count += not os.readlink(f"{_FOLDER}/{name}").endswith(_QUEUE_FILE)
        except OSError:
            continue  # the descriptor of the listing itself
    return count


# ====================================================================== environment
# Environment variables through which a service manager addresses this process.

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


# ====================================================================== later
# Libraries imported on first use, since they cost memory and time.
#
# Such an import runs on the loop. It takes a millisecond or two from the page cache, but a disk read otherwise. So the
# kernel is asked to read the files ahead once the daemon listens.

def read_ahead(packages: Iterable[str]) -> None:
    """Asks the kernel to read the packages' libraries ahead, without waiting."""
    for name in packages:
        spec = find_spec(name)
        for folder in spec.submodule_search_locations or () if spec else ():
            # If a file cannot be read, the import will fail and report it.
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".so"):
                        _advise(entry.path)


def _advise(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)


# ====================================================================== processors
# The number of processors this process may use. Does not import pathlib: the daemon calls it at startup.

_OWN = "/proc/self/cgroup"
_GROUPS = "/sys/fs/cgroup"


def available() -> float:
    """Processors allowed by the affinity mask and the control groups' quotas; may be less than one."""
    return min([float(len(os.sched_getaffinity(0))), *quotas(_OWN, _GROUPS)])


def quotas(own: str, groups: str) -> list[float]:
    """Quotas of the control groups listed in the file `own`, and of their ancestors; groups: the folder where they are
    mounted, version 2 or 1. Groups without a quota are omitted."""
    found = []
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "cpu", "cpu,cpuacct"):
            continue
        while True:
            quota = _quota(os.path.join(groups, controllers, path.lstrip("/")), not controllers)
            if quota is not None:
                found.append(quota)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return found


def _quota(folder: str, is_version_2: bool) -> float | None:
    if is_version_2:
        quota, _, period = _read(f"{folder}/cpu.max").strip().partition(" ")
    else:
        quota, period = _read(f"{folder}/cpu.cfs_quota_us").strip(), _read(f"{folder}/cpu.cfs_period_us").strip()
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _read(path: str) -> str:
    """A file's contents; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


# ====================================================================== shortage
# Starts that a limit of the system prevents, reported in one line.

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


# ====================================================================== usage
# Resource usage of this process. Takes system calls, one per open descriptor on older kernels: call it on a thread.



class Usage(NamedTuple):
    """A snapshot; -1: unknown to the system."""

    cpu_s: float        # user and system, since the start
    resident_bytes: int
    open_files: int
    most_files: int


def read() -> Usage:
    """Asks the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(used.ru_utime + used.ru_stime, _resident_bytes(), _open_files(), limit())


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return -1


def _open_files() -> int:
    try:
        # Since Linux 6.2 the folder's size is their number.
        return os.stat(_FOLDER).st_size or len(os.listdir(_FOLDER)) - 1
    except OSError:
        return -1


# ====================================================================== workers
# Threads for work that would keep the loop busy.

class Workers(ThreadPoolExecutor):
    """A pool that accepts work as long as it has a thread, and always has at least one.

    The standard library's pool starts threads on demand and, if the system has no more threads, refuses work it has
    already queued.
    """

    def __init__(self, most: int, name: str) -> None:
        """Starts the first thread of up to this many. Raises RuntimeError if the system has none."""
        super().__init__(most, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
