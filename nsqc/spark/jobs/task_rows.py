"""What tasks have published so far, told to the driver while they run: a datagram for each acknowledgement.

Spark itself tells only when a task has ended, and nothing of one that was stopped. A datagram that is lost does no
harm: the next has the sum.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

RECORD = struct.Struct(">16sQQ")    # token, number of the task's attempt, rows it has published
RECEIVE_BYTES = 1 << 20


class TaskRows:
    """On the driver. address: for RowReporter, as text."""

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.bind((host, 0))
        self._token = secrets.token_bytes(16)
        self._rows: dict[int, int] = {}
        self.address = f"{self._token.hex()}@{host}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="task_rows", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Published by all tasks, those of a task that was done again twice, which they are."""
        return sum(list(self._rows.values()))

    def close(self) -> None:
        """Takes in what has come already, and ends."""
        with suppress(OSError):
            self._socket.sendto(self._token, self._socket.getsockname())
            self._thread.join(2)
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(RECORD.size + 1)
            except OSError:
                return
            if data == self._token:     # from close(): nobody else knows it
                return
            if len(data) == RECORD.size:
                token, task, rows = RECORD.unpack(data)
                if token == self._token:
                    self._rows[task] = max(rows, self._rows.get(task, 0))


class RowReporter:
    """In a task. A driver that cannot be reached is no reason to publish less: nothing is raised."""

    def __init__(self, address: str, task: int):
        token, _, place = address.partition("@")
        host, _, port = place.rpartition(":")
        self._token, self._task = bytes.fromhex(token), task
        self._socket: socket.socket | None = None
        with suppress(OSError):
            family, kind, _, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.connect(where)

    def tell(self, totals: Any) -> None:
        """totals: the task's, nsqc.spark.sink.Totals."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(RECORD.pack(self._token, self._task, totals.rows))

    def close(self) -> None:
        """Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
