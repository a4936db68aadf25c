"""Runs as process 1 of a container. The kernel ignores signals for process 1 unless it handles them, and reparents
orphans to it; so process 1 only forwards signals and reaps, and the program runs in a child."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NoReturn

# Not forwarded: signals for faults of this process, and signals that sigwait() cannot receive.
OWN = {signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSTOP,
       signal.SIGTTIN, signal.SIGTTOU}
STDIN = 0


def become_init() -> None:
    """Forks. Returns in the child only."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - (OWN - {signal.SIGCHLD}))
    child = os.fork()
    if child:
        watch(child)
    take_terminal()
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
        if status is not None:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


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
