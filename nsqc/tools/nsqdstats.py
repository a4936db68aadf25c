"""Decodes /stats of an nsqd of any version. Import it late: msgspec is slow to import."""

from __future__ import annotations

from nsqc.wire.outside import Decoder, JSONError
from nsqc.wire.stats import Stats


class StatsAnswer(Stats):
    """/stats. data: of an nsqd before 1.0, which wraps its answers."""

    data: Stats | None = None


decode_stats = Decoder(StatsAnswer).decode


def stats_in(answer: bytes) -> Stats | None:
    """The statistics in an answer; None: another service's answer."""
    try:
        found = decode_stats(answer)
    except JSONError:
        return None
    stats = found.data or found
    return stats if stats.version or stats.topics is not None else None
