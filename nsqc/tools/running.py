"""Runs a tool: its signals, errors, exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from nsqc.client.errors import AuthError, BadAddress, BadName, ClientError, ConnectError, LookupFailed
from nsqc.tools import output
from nsqc.tools.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_NODE,
    EXIT_PIPE,
    EXIT_TERMINATED,
    EXIT_USAGE,
    ToolError,
    UsageError,
)
from nsqc.tools.output import PipeClosed


class Stopped(BaseException):
    """A signal that ends the tool; raised in the main thread, so that with blocks and finally run."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        """The exit code, unless the tool sets another."""
        return EXIT_INTERRUPTED if self.number == signal.SIGINT else EXIT_TERMINATED


def guarded(place: str, work: Callable[[], int]) -> int:
    """Runs work with signals as exceptions, and errors as one line on stderr; returns the exit code. place: its
    prefix."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        return work()
    except Stopped as stopped:
        return stopped.code
    except PipeClosed:
        return EXIT_PIPE
    except UsageError as error:
        where = error.where or place
        output.error(place, f"{error} (see {where} --help)" if error.where else str(error))
        return error.code
    except ToolError as error:
        output.error(place, str(error))
        return error.code
    except ClientError as error:
        output.error(place, str(error))
        return code_of(error)
    except OSError as error:
        name = f"{error.filename}: " if isinstance(error.filename, str) else ""
        output.error(place, f"{name}{error.strerror or error}")
        return EXIT_FAILED
    except MemoryError:
        output.error(place, "out of memory")
        return EXIT_FAILED
    finally:
        # From here on the process is ending; a second signal must not turn that into a traceback.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def code_of(error: ClientError) -> int:
    """The exit code for an error of nsqc.client."""
    if isinstance(error, (BadName, BadAddress)):
        return EXIT_USAGE
    if isinstance(error, AuthError):
        return EXIT_FAILED
    return EXIT_NO_NODE if isinstance(error, (ConnectError, LookupFailed)) else EXIT_FAILED


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler. A second signal ends the process at once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    raise Stopped(number)
