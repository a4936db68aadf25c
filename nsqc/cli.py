"""The command line: `nsqc COMMAND`, with the commands in nsqc/commands. Invoked as nsqd it is `nsqc serve`, as
nsqlookupd `nsqc lookupd`, as nsqadmin `nsqc admin`; under the name of an NSQ tool it is that tool."""

from __future__ import annotations

import gc
import os.path
import signal
import sys
from collections.abc import Collection
from typing import NoReturn

from nsqc import own_version

VERSION_FLAGS = ("--version", "-version")


def main() -> None:
    """The entry point of the executable."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a command handles it: there is nothing to clean up, and a traceback would help nobody.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if os.getpid() == 1:
            from nsqc.process.lifecycle import become_init

            become_init()
        run_called()
    except (ImportError, MemoryError, OSError) as error:
        from nsqc.process.machine import shortage

        reason = shortage(error)
        if reason is None:
            raise
        sys.exit(f"nsqc: {reason}")


def run_called() -> NoReturn:
    """Runs the program that is meant; exits with its code."""
    from nsqc.commands import ORIGINALS, SERVERS, TOOLS

    name, words = called(sys.argv, {"nsqc", *SERVERS.values()})
    if name in ORIGINALS:
        from nsqc.commands.tools import run_original

        sys.exit(run_original(name, words))
    words = [*(command for command, original in SERVERS.items() if original == name), *words]
    if words[:1] == ["--"]:
        words = words[1:]
    first = words[0] if words else ""
    if first in SERVERS:
        sys.exit(serve(first, words[1:]))
    if words == ["version"] or first in VERSION_FLAGS:
        # Scripts call this often, and importing typer would take ten times as long.
        from nsqc.commands.output import print_text

        print_text(own_version())
        sys.exit(0)
    try:
        if first in TOOLS:
            from nsqc.commands.tools import run_tool

            sys.exit(run_tool(first, words[1:]))
        from nsqc.commands.app import run
    except ModuleNotFoundError as error:
        sys.exit(lacking(error, words))
    sys.exit(run(words))


def called(arguments: list[str], servers: Collection[str]) -> tuple[str, list[str]]:
    """The program to run, and its arguments. In a container `nsqc` comes before a command such as /nsqd."""
    name, words = os.path.basename(arguments[0]), arguments[1:]
    if words:
        first = os.path.basename(words[0])
        if first in servers or first.startswith(("nsq_", "to_nsq")):
            return first, words[1:]
    return name, words


def lacking(error: ModuleNotFoundError, words: list[str]) -> int:
    """Names the extra with the package that a command needs; returns the exit code."""
    if error.name != "typer":
        raise error
    command = " ".join(["nsqc", *words[:1]])
    print(f"{command}: needs the Python package typer: pip install 'nsqc[tools]' (nsqc serve, nsqc lookupd, nsqc "
          "admin and NSQ's tools under their own names do not need it)", file=sys.stderr)
    return 1


def serve(command: str, words: list[str]) -> int:
    """Runs a server."""
    # Until the server enables it: objects created by imports stay, and collections would take a tenth of the start.
    gc.disable()
    from nsqc.process.machine import too_small

    if reason := too_small():
        sys.exit(f"nsqc: {reason}")
    from nsqc.commands import start

    run = {"serve": start.serve, "lookupd": start.lookupd, "admin": start.admin}[command]
    return run(words)
