"""Limits shared by all parts of the player, and the exceptions that end a scenario early."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"

RESPONSE, ERROR, MESSAGE = 0, 1, 2
FRAME_NAMES = {RESPONSE: "response", ERROR: "error"}
HEARTBEAT = b"_heartbeat_"
MESSAGE_HEADER = struct.Struct(">qH16s")
LARGEST_FRAME = 64 << 20

DEFAULT_WAIT_MS = 5000  # how long a read, poll or fake waits for its result
START_WAIT_S = 15  # how long a server may take until it answers /ping
STOP_WAIT_S = 10  # how long a server may take to exit after SIGTERM
STILL_STARTING = (ConnectionRefusedError, FileNotFoundError, TimeoutError)
POLL_GAP_S = 0.02
GIVE_UP_AFTER = 6  # consecutive servers that never got ready
END_CHECK_S = 0.02  # last look for unread frames
CLOSED = "closed"
VARYING_STATSD = r"\.mem\.|e2e_processing_latency"
LINE_LENGTH = 118  # of scenario files
LOG_LINES = 12  # of the server's log, shown with a failure


class Failure(Exception):
    """The server deviated from the transcript."""

    def __init__(self, what: str, want: Any = None, got: Any = None):
        super().__init__(what)
        self.want, self.got = want, got


class NotReady(Failure):
    """The server never answered /ping."""


class BadScenario(Exception):
    """The scenario file uses an unknown step or option."""


class Skip(Exception):
    """A tool this scenario needs is not on this machine."""


@dataclass
class Options:
    command: list[str]
    record: bool = False
    key_order: bool = False
    patience: float = 1.0
    forked: bool = False
