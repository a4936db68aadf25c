"""Runs as process 1 of a container. The kernel ignores signals for process 1 unless it handles them, and reparents
orphans to it; so process 1 only forwards signals and reaps, and the program runs in a child."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import NoReturn

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
