"""Before a server runs: process 1 of a container, and one process per folder. Imports no event loop."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

# ====================================================================== init
# Runs as process 1 of a container. The kernel ignores signals for process 1 unless it handles them, and reparents
# orphans to it; so process 1 only forwards signals and reaps, and the program runs in a child.

# Not forwarded: signals for faults of this process, and signals that sigwait() cannot receive.
OWN = {signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSTOP,
       signal.SIGTTIN, signal.SIGTTOU}
STDIN, STDERR = 0, 2
# Signals by which a program fails, or the kernel ends it.
FAILURES = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}


def become_init() -> None:
    """Forks. Returns in the child only."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - (OWN - {signal.SIGCHLD}))
    child = os.fork()
    if child:
        watch(child)
    take_terminal()
    # Signals that the executable handles while it loads, as process 1 must: no other process does.
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_terminal() -> None:
    """Creates a process group in the foreground of the terminal, if any: otherwise Ctrl-C would arrive twice, from
    the terminal and from process 1."""
    os.setpgid(0, 0)
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)      # taking a terminal from the background raises it
    with contextlib.suppress(OSError):
        os.tcsetpgrp(STDIN, os.getpgrp())
    signal.signal(signal.SIGTTOU, before)


def watch(child: int) -> NoReturn:
    """Forwards signals and reaps orphans until the child ends; exits with its status."""
    awaited = signal.valid_signals() - (OWN - {signal.SIGCHLD})
    while True:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):       # it has just ended
                os.kill(child, number)
            continue
        status = reap(child)
        if status is None:
            continue
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
        tell(os.WTERMSIG(status))
        os._exit(128 + os.WTERMSIG(status))


def reap(child: int) -> int | None:
    """Reaps all ended processes. Returns the child's status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def tell(number: int) -> None:
    """Writes the failure that ended the program, which cannot do so itself. Does not wait for a reader of stderr."""
    if number not in FAILURES:
        return
    reason = ": the kernel does that when memory runs out (memory.max)" if number == signal.SIGKILL else ""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [STDERR], [], 0)[1]:
            os.write(STDERR, f"nsqc: ended by {signal.Signals(number).name}{reason}\n".encode())


# ====================================================================== lock
# One process per folder: flock(2), as nsqd locks its data path.

class LockError(Exception):
    """The folder cannot be locked; the text is nsqd's."""


def lock(folder: str) -> int:
    """Locks the folder until the returned descriptor is closed or the process ends. Raises LockError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        hint = advice(folder, error.errno)
        raise LockError(f"failed to lock data-path: open {folder}: {error.strerror}{hint}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise LockError(f"failed to lock data-path: cannot flock directory {folder} - {error.strerror} "
                        "(possibly in use by another instance of nsqd)") from None
    return descriptor


@contextmanager
def locked(folders: Iterable[str]) -> Iterator[None]:
    """Locks folders meanwhile. Raises LockError."""
    descriptors: list[int] = []
    try:
        for folder in sorted(folders):
            descriptors.append(lock(folder))
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def check_writable(folder: str) -> None:
    """Raises LockError if this process cannot create files in the folder."""
    if os.access(folder, os.W_OK | os.X_OK):
        return
    code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
    raise LockError(f"cannot write to data-path: {folder}: {os.strerror(code)}{advice(folder, code)}")


def advice(folder: str, code: int | None) -> str:
    """The remedy for a folder that cannot be used, after the reason."""
    if code == errno.ENOENT:
        return "; create it, or set --data-path"
    if code == errno.EROFS:
        return "; mount it writable, or set --data-path"
    if code != errno.EACCES:
        return ""
    try:
        status = os.stat(folder)
    except OSError:
        return ""       # of a folder above
    mode = stat.S_IMODE(status.st_mode)
    return (f"; it belongs to user {status.st_uid} and group {status.st_gid} with mode {mode:o}, and this process runs "
            f"as user {os.geteuid()} and group {os.getegid()}: chown it, or set --data-path")
