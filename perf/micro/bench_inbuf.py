"""Commands that arrive in pieces (nsqc.wire.parser, through the parser)."""

from perf.micro import timing
from perf.micro.bench_parser import multi_publish
from perf.micro.timing import Part, Row, Size
from tests.compiled.wire import CommandReader

TITLE = "inbuf: nanoseconds a piece of an MPUB of 40 KB"
PIECE = 1448


def bench(size: Size) -> list[Row]:
    """Pieces of a packet's size; the last one completes the command, which becomes objects."""
    command, times = multi_publish(), size.of(200)
    pieces = [command[at:at + PIECE] for at in range(0, len(command), PIECE)] * times

    def feed():
        reader = CommandReader()
        return lambda: timing.exhaust(map(reader.feed, pieces))

    def append():
        kept = bytearray()
        return lambda: timing.exhaust(map(kept.extend, pieces))

    return [timing.compare(Part(f"feed {PIECE} bytes", feed, len(pieces)),
                           Part("bytearray.extend", append, len(pieces)), size)]


if __name__ == "__main__":
    timing.main(TITLE, bench)
