"""Frames into a send buffer (nsqc.wire.framer)."""

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.wire import message_frames, response_frame

TITLE = "framer: nanoseconds a frame"
STAMP = 1_700_000_000_000_000_000
MESSAGE_ID = b"0123456789abcdef"


def bench(size: Size) -> list[Row]:
    """Message frames of two sizes into one buffer, which is copied once; single responses."""
    rows = []
    for body_bytes, count in ((200, size.of(1000)), (10_000, size.of(100))):
        body = b"x" * body_bytes
        frames = message_frames(body, STAMP, 1, MESSAGE_ID, count)
        rows.append(timing.compare(
            Part(f"message of {body_bytes} bytes",
                 lambda body=body, count=count: lambda: message_frames(body, STAMP, 1, MESSAGE_ID, count), count),
            Part("copy of the frame", lambda frames=frames: lambda: bytearray(frames), count), size))
    many = size.of(50_000)
    rows.append(timing.compare(
        Part("response OK", lambda: lambda: timing.exhaust(map(response_frame, [b"OK"] * many)), many),
        Part("bytearray(b'OK')", lambda: lambda: timing.exhaust(map(bytearray, [b"OK"] * many)), many), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
