"""What is alive in the compiled rooms, for leak checks and /debug/pprof/heap."""

from __future__ import annotations

from nsqc.store import delivery, message
from nsqc.store.disk import segment, unacked, writebuf
from nsqc.wire import framer, inbuf


def counts() -> dict[str, int]:
    """Messages, deliveries, their places on disk, and buffers. Only a debug build counts messages and the buffers of
    connections: else they are 0."""
    return {
        "messages": message.alive(),
        "deliveries": delivery.alive(),
        "places": unacked.alive(),
        "write_buffers": writebuf.alive(),
        "read_blocks": segment.alive(),
        "input_buffers": inbuf.alive(),
        "output_buffers": framer.alive(),
    }
