"""`nsqc version`"""

from __future__ import annotations

from nsqc import own_version
from nsqc.commands.output import print_text


def command() -> None:
    """Print nsqc's version and the NSQ version it is compatible with."""
    print_text(own_version())
