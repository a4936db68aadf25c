"""`nsqc version`"""

from __future__ import annotations

from nsqc import own_version
from nsqc.commands.output import print_text


def command() -> None:
    """Print nsqc's version, and the version of NSQ in whose place it works."""
    print_text(own_version())
