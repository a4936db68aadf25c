"""What is alive in the compiled rooms, for leak checks and /debug/pprof/heap."""

from __future__ import annotations

from nsqc.store import delivery, message
from nsqc.wire import framer, inbuf


def counts() -> dict[str, int]:
    """Messages, deliveries and connection buffers. Only a debug build counts messages and buffers: else they are 0."""
    return {
        "messages": message.alive(),
        "deliveries": delivery.alive(),
        "input_buffers": inbuf.alive(),
        "output_buffers": framer.alive(),
    }
