"""Counters of live objects in compiled packages, for leak checks and /debug/pprof/heap."""

from __future__ import annotations

from nsqc.store import delivery, message
from nsqc.store.disk import segment, unacked, writebuf
from nsqc.store.log import buffer
from nsqc.wire import framer, inbuf


def counts() -> dict[str, int]:
    """Live objects by kind.

    Every build counts deliveries, their places on disk, and reads and writes of files. Only a debug build counts
    messages and the input and output buffers of connections; otherwise these are 0.
    """
    return {
        "messages": message.alive(),
        "deliveries": delivery.alive(),
        "places": unacked.alive(),
        "write_buffers": writebuf.alive(),
        "read_blocks": segment.alive(),
        "log_buffers": buffer.alive(),
        "input_buffers": inbuf.alive(),
        "output_buffers": framer.alive(),
    }
