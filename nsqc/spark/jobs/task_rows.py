"""Counts the rows published by running tasks: each reports to the driver with a datagram per acknowledgement.

Spark itself reports only completed tasks, and nothing about cancelled ones. A lost datagram does no harm: the
next one has the new sum.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Protocol

RECORD = struct.Struct(">16sQQ")    # token, attempt id of the task, rows it has published
RECEIVE_BYTES = 1 << 20


class HasRows(Protocol):
    """The reported part of a task's totals."""

    rows: int


class TaskRows:
    """The driver's side. address: for RowReporter, as text."""

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
        """Rows published by all tasks; a repeated task counts twice, as its rows were published twice."""
        return sum(list(self._rows.values()))

    def close(self) -> None:
        """Processes received datagrams until closed."""
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
            if data == self._token:     # from close(): only this process knows the token
                return
            if len(data) == RECORD.size:
                token, task, rows = RECORD.unpack(data)
                if token == self._token:
                    self._rows[task] = max(rows, self._rows.get(task, 0))


class RowReporter:
    """A task's side. Raises nothing: publishing does not depend on reaching the driver."""

    def __init__(self, address: str, task: int):
        token, _, endpoint = address.partition("@")
        host, _, port = endpoint.rpartition(":")
        self._token, self._task = bytes.fromhex(token), task
        self._socket: socket.socket | None = None
        with suppress(OSError):
            family, kind, _, _, driver = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.connect(driver)

    def report(self, totals: HasRows) -> None:
        """Sends the task's totals."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(RECORD.pack(self._token, self._task, totals.rows))

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
