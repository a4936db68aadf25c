"""`nsqc version`"""

from __future__ import annotations

from nsqc import version_line


def command() -> None:
    """Print the version in nsqd's form."""
    print(version_line("nsqd"))
