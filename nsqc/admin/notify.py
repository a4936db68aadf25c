"""Notifications of changes: each is POSTed to an endpoint, one after the other. A failure is only logged."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque

from nsqc.admin.people import basic_user
from nsqc.admin.shapes import encode
from nsqc.httpd.request import Request
from nsqc.log import Log
from nsqc.net.url import parse_server
from nsqc.peers.dial import Dialer
from nsqc.peers.http import AnswerError, ask, request
from nsqc.peers.tasks import reason_of, spawn

MOST_WAITING = 1000
LIMIT_S = 10.0


class Notifier:
    """Sends to one endpoint."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: str, connect_s: float, log: Log) -> None:
        """endpoint: a URL. Raises ValueError."""
        self._server = parse_server(endpoint)
        self._loop = loop
        self._dialer = Dialer(loop)
        self._connect_s = connect_s
        self._log = log
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, data: dict[str, object]) -> None:
        """Adds a notification."""
        if len(self._waiting) >= MOST_WAITING:
            self._log.error("failed to POST notification - %d wait already", len(self._waiting))
            return
        self._waiting.append(encode(data))
        if self._task is None or self._task.done():
            self._task = spawn(self._loop, self._run(), self._log)

    async def close(self) -> None:
        """Waits a moment for those that wait."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            try:
                await self._post(self._waiting.popleft())
            except (OSError, ValueError, AnswerError) as error:
                self._log.error("failed to POST notification - %s", reason_of(error))

    async def _post(self, body: bytes) -> None:
        server = self._server
        data = request("POST", server.host, server.target, "Content-Type: application/json", body=body)
        context = ssl.create_default_context() if server.tls else None
        async with asyncio.timeout(LIMIT_S):
            await ask(self._loop, self._dialer, server.address, data, self._connect_s, context)


def notification(action: str, request: Request, user: str, prefix: str, *, topic: str, channel: str = "",
                 node: str = "") -> dict[str, object]:
    """A notification as nsqadmin's. user: as named by the proxy in front, used if HTTP Basic names none."""
    scheme = "https" if request.header("X-Scheme") == "https" else "http"
    host = (request.host or b"").decode("latin-1")
    parts: dict[str, object] = {
        "action": action, "topic": topic, "channel": channel, "node": node, "timestamp": int(time.time()),
        "user": basic_user(request) or user, "remote_ip": request.remote, "user_agent": request.header("User-Agent"),
        "url": f"{scheme}://{host}{prefix}{request.path.decode('latin-1')}", "via": socket.gethostname()}
    return {key: value for key, value in parts.items() if value or key not in ("channel", "node", "user")}
