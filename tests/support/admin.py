"""A real admin server for tests: its own process on a free port."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.daemon import unwatched
from tests.support.forks import run
from tests.support.patience import WAIT_SECONDS

HOST = "127.0.0.1"


class Answer(NamedTuple):
    """An answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class AdminServer:
    """One running server."""

    def __init__(self, log_path: Path, *flags: str):
        self.log_path = log_path
        self.host = HOST        # the address that calls use
        words = [f"--http-address={HOST}:0", "--poll-interval=1s", *unwatched(flags), *flags]
        with log_path.open("ab") as log:
            self.process = run(["admin", *words], log)
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(r"HTTPS?: listening on \S+:(\d+)", self.log)):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log
            time.sleep(0.01)
        self.port = int(found[1])

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """One call; a body that is not bytes becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """An answer that must be JSON with status 200."""
        answer = self.call("GET", path, **headers)
        assert answer.status == 200, (path, answer)
        return answer.json

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
