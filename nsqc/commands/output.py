"""What commands have in common: exit codes, and text for stdout."""

from __future__ import annotations

import os

from nsqc.log.visible import visible_lines

EXIT_REFUSED, EXIT_USAGE = 1, 2
STDOUT = 1


def print_text(text: str) -> None:
    """Prints text, with terminal controls escaped: names in damaged files may contain any bytes. The reader may leave
    early (`--help | head`)."""
    try:
        print(visible_lines(text), flush=True)
    except BrokenPipeError:
        # The rest would be written, and fail, again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
