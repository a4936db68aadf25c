"""Errors that end a tool: one line on stderr and an exit code. docs/tools.md has the table."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1         # some or all of the work was refused, or cannot be read or written
EXIT_USAGE = 2          # the command line is invalid
EXIT_NO_NODE = 3        # no nsqd or nsqlookupd answers
EXIT_NO_NAME = 4        # a topic, channel or node does not exist
EXIT_PERMANENT = 5      # a worker: no nsqd will accept it until the options or an nsqd change
EXIT_INTERRUPTED = 130  # SIGINT, after a clean end
EXIT_PIPE = 141         # the reader of stdout has gone
EXIT_TERMINATED = 143   # SIGTERM with work left


class ToolError(Exception):
    """The tool cannot continue. The text is one line for the user; code: the exit code."""

    def __init__(self, text: str, code: int = EXIT_FAILED):
        super().__init__(text)
        self.code = code


class UsageError(ToolError):
    """The command line is invalid. where: the tool whose --help explains it."""

    def __init__(self, text: str, where: str = ""):
        super().__init__(text, EXIT_USAGE)
        self.where = where


class NoNode(ToolError):
    """No node answers."""

    def __init__(self, text: str):
        super().__init__(text, EXIT_NO_NODE)


class NoName(ToolError):
    """A topic, channel or node does not exist. near: existing names, for a suggestion."""

    def __init__(self, kind: str, name: str, known: list[str] | tuple[str, ...] = (), place: str = ""):
        super().__init__(f"{kind} {name!r} does not exist{place}{suggestion(name, known)}", EXIT_NO_NAME)


def suggestion(name: str, known: list[str] | tuple[str, ...], template: str = ", did you mean {!r}?") -> str:
    """The nearest of some names as the end of an error; empty if none is near."""
    import difflib  # only after a typo

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return template.format(near[0]) if near else ""
