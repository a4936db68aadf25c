"""nsqc.dat: what nsqd's files have no room for. nsqd ignores it.

It holds how far message ids have come, so that they rise across restarts whatever the clock does, and the delays of
deferred messages that a stop has written to the disk queues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from nsqc.broker.files import replace_file

FILE_NAME = "nsqc.dat"
UNIT_BITS = 20  # ids count time in units of 2^20 ns


class Sidecar(msgspec.Struct, gc=False):
    """The file. Ids are their 16 digits; topic delays in milliseconds, channel times in wall-clock nanoseconds."""

    reached_unit: int = 0
    topics: dict[str, dict[str, int]] = {}
    channels: dict[str, dict[str, int]] = {}


def load(data_path: Path, log: Any) -> Sidecar:
    """What an earlier run has left; empty where it left nothing."""
    try:
        return msgspec.json.decode((data_path / FILE_NAME).read_bytes(), type=Sidecar)
    except FileNotFoundError:
        return Sidecar()
    except (OSError, msgspec.DecodeError) as error:
        log.error("NSQ: %s cannot be used, deferred messages lose their delays - %s", data_path / FILE_NAME, error)
        return Sidecar()


def save(data_path: Path, sidecar: Sidecar, durable: bool = True) -> None:
    """Writes the file. Raises OSError."""
    replace_file(data_path / FILE_NAME, msgspec.json.encode(sidecar), durable)


def restore(broker: Any, sidecar: Sidecar) -> None:
    """Hands the delays to the topics and channels they belong to."""
    for name, delays in sidecar.topics.items():
        topic = broker.topic(name.encode())
        if topic is not None:
            topic.restore_delays(as_bytes(delays))
    for name, delays in sidecar.channels.items():
        topic_name, _, channel_name = name.partition(":")
        topic = broker.topic(topic_name.encode())
        channel = topic and topic.channel(channel_name.encode())
        if channel is not None:
            channel.restore_delays(as_bytes(delays))


def collect(reached_unit: int, delays: dict[str, dict[str, dict[bytes, int]]]) -> Sidecar:
    """The file for what Broker.close() has returned."""
    return Sidecar(reached_unit,
                   {name: as_text(found) for name, found in delays["topics"].items()},
                   {name: as_text(found) for name, found in delays["channels"].items()})


def as_bytes(delays: dict[str, int]) -> dict[bytes, int]:
    """Ids as the queues have them."""
    return {digits.encode("latin-1"): value for digits, value in delays.items()}


def as_text(delays: dict[bytes, int]) -> dict[str, int]:
    """Ids as JSON can have them."""
    return {digits.decode("latin-1"): value for digits, value in delays.items()}
