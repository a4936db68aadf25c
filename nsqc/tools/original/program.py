"""Runs an original tool: version, flags, Go's log lines, exit codes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from nsqc import NSQD_VERSION
from nsqc.client.errors import ClientError
from nsqc.options.goflags import FlagError, HelpWanted
from nsqc.options.option import Kind, Option
from nsqc.tools import output
from nsqc.tools.declare import Values
from nsqc.tools.errors import ToolError
from nsqc.tools.original.flags import parse, usage
from nsqc.tools.output import PipeClosed
from nsqc.tools.running import Stopped

EXIT_FATAL, EXIT_FLAGS, EXIT_PIPE = 1, 2, 141
SOCKET_ERROR = re.compile(
    r"(\S+): (Connection refused|Connection reset by peer|No route to host|Network is unreachable)")


class Program(NamedTuple):
    """run returns the exit code and may raise Fatal, ToolError, ClientError, OSError."""

    name: str
    flags: tuple[Option, ...]
    run: Callable[[Values], int]
    has_version: bool = True


class Fatal(Exception):
    """The tool ends with this line and exit code 1."""


VERSION = Option("version", "print the version and exit", Kind.BOOL, False)


def run(program: Program, words: list[str]) -> int:
    """The exit code."""
    flags = (*program.flags, VERSION) if program.has_version else program.flags
    try:
        values = parse(flags, words)
    except HelpWanted:
        output.note_lines(usage(program.name, flags))
        return 0
    except FlagError as error:
        output.note_lines(f"{error}\n{usage(program.name, flags)}")
        return EXIT_FLAGS
    return guarded(lambda: printed_version(program) if program.has_version and values.flag("version")
                   else program.run(values))


def printed_version(program: Program) -> int:
    """Prints the version."""
    output.line(f"{program.name} v{NSQD_VERSION}")
    return 0


def guarded(work: Callable[[], int]) -> int:
    """Runs work, with its errors as log lines."""
    try:
        return work()
    except Stopped:
        return 0
    except PipeClosed:
        return EXIT_PIPE
    except Fatal as error:
        log_line(str(error))
    except (ToolError, ClientError) as error:
        log_line(as_go(str(error)))
    except OSError as error:
        name = f"{error.filename}: " if isinstance(error.filename, str) else ""
        log_line(f"ERROR: {name}{error.strerror or error}")
    except MemoryError:
        log_line("ERROR: out of memory")
    return EXIT_FATAL


def log_line(text: str) -> None:
    """A log line in Go's format."""
    output.note(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {text}")


def warn_line(text: str) -> None:
    """A line about an nsqd, in go-nsq's format."""
    log_line(f"WRN    1 {as_go(text)}")


def as_go(text: str) -> str:
    """An error of a socket in Go's wording."""
    text = text.removeprefix("no nsqd answers: ")
    return SOCKET_ERROR.sub(lambda found: f"dial tcp {found[1]}: connect: {found[2].lower()}", text)
