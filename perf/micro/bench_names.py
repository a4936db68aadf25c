"""The rule for names (nsqc.wire.parser)."""

import re

from nsqc.wire.parser import is_valid_name
from perf.micro import timing
from perf.micro.timing import Part, Row, Size

TITLE = "names: nanoseconds a call"
RULE = re.compile(rb"[.a-zA-Z0-9_-]{1,64}(#ephemeral)?")


def bench(size: Size) -> list[Row]:
    """A short, a long and an ephemeral name."""
    many = size.of(50_000)
    rows = []
    for title, name in (("short", b"load"), ("64 bytes", b"n" * 64), ("ephemeral", b"some.topic#ephemeral")):
        names = [name] * many
        rows.append(timing.compare(
            Part(title, lambda names=names: lambda: timing.exhaust(map(is_valid_name, names)), many),
            Part("re.fullmatch", lambda names=names: lambda: timing.exhaust(map(RULE.fullmatch, names)), many), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
