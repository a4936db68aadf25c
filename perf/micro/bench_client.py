"""The client's compiled parts: frames in (nsqc.client.frames, message), commands out (nsqc.client.frames)."""

from nsqc.client import frames as encode
from nsqc.client.frames import Inflow, messages
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.wire import message_frames

TITLE = "client: nanoseconds a message of 200 bytes"
BODY = b"x" * 200


def bench(size: Size) -> list[Row]:
    """Compares each with a copy of its bytes."""
    count = size.of(2000)
    frames = message_frames(BODY, 1_700_000_000_000_000_000, 1, b"0123456789abcdef", count)
    ids, bodies = b"0123456789abcdef" * count, (BODY,) * count

    def columns() -> tuple:
        inflow = Inflow(1 << 20)
        inflow.feed(frames)
        return inflow.columns()

    command, _ = encode.batch(b"MPUB t\n", bodies, 0, count, 1 << 30)
    fins = encode.finish(ids)
    ready = columns()
    return [
        timing.compare(Part("frames to columns", lambda: columns, count),
                       Part("copy of the frames", lambda: lambda: bytearray(frames), count), size),
        timing.compare(Part("columns to Message objects", lambda: lambda: messages(ready, None), count),
                       Part("copy of the frames", lambda: lambda: bytearray(frames), count), size),
        timing.compare(Part("bodies checked", lambda: lambda: encode.all_checked(bodies, 1 << 20), count),
                       Part("copy of the MPUB", lambda: lambda: bytearray(command), count), size),
        timing.compare(Part("MPUB from bytes",
                            lambda: lambda: encode.batch(b"MPUB t\n", bodies, 0, count, 1 << 30), count),
                       Part("copy of the MPUB", lambda: lambda: bytearray(command), count), size),
        timing.compare(Part("FIN from ids", lambda: lambda: encode.finish(ids), count),
                       Part("copy of the FINs", lambda: lambda: bytearray(fins), count), size),
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
