"""An S3 server that misbehaves as clouds do: moto, or a real store, behind a layer that refuses, delays, cuts, and loses
answers."""

import http.client
import io
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

SECRET = "a-secret-that-nobody-should-see"
Application = Callable[[dict[str, Any], Any], Any]


class Quiet(WSGIRequestHandler):
    def log(self, *args: object) -> None:
        pass


class Server:
    """`faults` are used up by puts and gets of objects, one each, in order; `rate` adds random ones. Each call takes at
    least `delay` seconds. behind: the port of a real store, which has a bucket `acme`; 0: moto."""

    def __init__(self, delay: float = 0.0, behind: int = 0) -> None:
        # Its import takes a second, and each process imports this file.
        from moto.server import DomainDispatcherApplication, create_backend_app

        self.delay, self.behind = delay, behind
        self.store: Application = (partial(forward, behind) if behind
                                   else DomainDispatcherApplication(create_backend_app))
        self.faults: list[str] = []
        self.rate, self.random = 0.0, random.Random(1)
        self.calls: list[tuple[str, str]] = []
        self.lock = threading.Lock()            # moto checks conditions and creates in two steps
        self.server = make_server("127.0.0.1", 0, self.answer, threaded=True, request_handler=Quiet)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        if not behind:
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.request("PUT", "/acme", headers={"Host": "s3.amazonaws.com", "Content-Length": "0"})
            assert connection.getresponse().status == 200
            connection.close()

    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT": f"http://127.0.0.1:{self.port}", "AWS_ALLOW_HTTP": "true"}

    def answer(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        began = time.monotonic()
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.calls.append((method, path))
        fault = ""
        if path.count("/") > 1:
            with self.lock:
                if self.faults:
                    fault = self.faults.pop(0)
                elif self.random.random() < self.rate:
                    fault = self.random.choice(("500", "503", "409", "slow", "lost", "cut", "500 done"))
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault == "slow":
            time.sleep(0.1)
        if fault.isdigit():
            return self.refuse(start, fault)
        if fault == "cut":
            return self.cut(environ, start)
        answer = self.forward(environ, start if fault in ("", "slow") else lambda *args: None, body)
        time.sleep(max(0.0, began + self.delay - time.monotonic()))
        if fault == "lost":
            return self.cut(environ, start)
        return self.refuse(start, "500") if fault == "500 done" else answer

    def forward(self, environ: dict[str, Any], start: Any, body: bytes) -> Iterator[bytes]:
        environ["wsgi.input"] = io.BytesIO(body)
        with nullcontext() if self.behind else self.lock:
            return iter([b"".join(self.store(environ, start))])

    def refuse(self, start: Any, status: str) -> Iterator[bytes]:
        start(f"{status} Refused", [("Content-Type", "application/xml")])
        return iter([f"<Error><Code>Refused{status}</Code></Error>".encode()])

    def cut(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        """The client gets nothing: the answer goes into a closed connection."""
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start("200 OK", [])
        return iter([])

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def forward(port: int, environ: dict[str, Any], start: Any) -> list[bytes]:
    """Has a real store answer, with the headers as signed."""
    body = environ["wsgi.input"].read()
    headers = {name[5:].replace("_", "-"): value for name, value in environ.items()
               if name.startswith("HTTP_") and name not in ("HTTP_CONNECTION", "HTTP_EXPECT")}
    if environ.get("CONTENT_TYPE"):
        headers["Content-Type"] = environ["CONTENT_TYPE"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(environ["REQUEST_METHOD"], environ["RAW_URI"], body, headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    start(f"{answer.status} {answer.reason}", [(name, value) for name, value in answer.getheaders()
                                               if name.lower() not in ("connection", "transfer-encoding", "keep-alive")])
    return [data]


if __name__ == "__main__":      # python -m tests.bucket.s3 0.03: a bucket acme that answers in 30 ms, for perf.bucket
    server = Server(float(sys.argv[1]))
    print("export", *(f"{name}={value}" for name, value in server.environment().items()), flush=True)
    server.thread.join()
