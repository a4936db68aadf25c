"""The check of a multi-publish's body (nsqc.wire.parser)."""

from nsqc.wire import parser
from perf.micro import timing
from perf.micro.bench_parser import BATCH, multi_publish
from perf.micro.timing import Part, Row, Size

TITLE = "mpub: nanoseconds a message of 200 bytes"
HEAD_BYTES = len(b"MPUB load\n") + 4


def bench(size: Size) -> list[Row]:
    """200 messages a body."""
    body, times = multi_publish()[HEAD_BYTES:], size.of(2000)
    if parser.check(body, 1 << 20, 5 << 20) != len(body):
        raise AssertionError("the body is refused")
    return [timing.compare(
        Part("check", lambda: lambda: [parser.check(body, 1 << 20, 5 << 20) for _ in range(times)], BATCH * times),
        Part("bytes.find over it", lambda: lambda: [body.find(b"\xff") for _ in range(times)], BATCH * times), size)]


if __name__ == "__main__":
    timing.main(TITLE, bench)
