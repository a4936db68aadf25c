"""V2 commands out of a stream (nsqc.wire.parser)."""

import struct

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.wire import CommandReader

TITLE = "parser: nanoseconds a command, MPUB: a message"
BODY = b"x" * 200
BATCH = 200


def with_body(line: bytes, body: bytes) -> bytes:
    """A command with its body."""
    return line + b"\n" + struct.pack(">i", len(body)) + body


def multi_publish() -> bytes:
    """MPUB of 200 messages of 200 bytes."""
    return with_body(b"MPUB load", struct.pack(">i", BATCH) + (struct.pack(">i", len(BODY)) + BODY) * BATCH)


def bench(size: Size) -> list[Row]:
    """All commands of the hot path, many of a kind in one buffer."""
    many = size.of(50_000)
    rows = []
    for name, command, commands, each in (
        ("FIN", b"FIN 0123456789abcdef\n", many, 1),
        ("RDY", b"RDY 2500\n", many, 1),
        ("PUB of 200 bytes", with_body(b"PUB load", BODY), many, 1),
        ("DPUB of 200 bytes", with_body(b"DPUB load 1000", BODY), many, 1),
        ("MPUB 200 x 200 bytes", multi_publish(), size.of(500), BATCH),
    ):
        data = command * commands
        if CommandReader().count(data) != commands:
            raise AssertionError(f"{name}: not all commands were read")
        rows.append(timing.compare(
            Part(name, lambda data=data: lambda: CommandReader().count(data), commands * each),
            Part("bytes.find over them", lambda data=data: lambda: data.find(b"\xff"), commands * each), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
