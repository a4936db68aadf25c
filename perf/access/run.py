"""Measures the daemon's CPU time per message with and without access rules, and their ratio.

    python -m perf.access.run [--rounds 9] [--quick]

One connection that has sent AUTH, or shows a token with each request: PUB of 200 bytes and of 100 KB, 200 bytes over
HTTP, and consuming with RDY 2500. Both daemons get the same bytes except for AUTH, alternately; results are the best of
the rounds, because a busy machine only adds to them.
"""

from __future__ import annotations

import argparse
import shlex
import socket
import struct
import sys
import tempfile
from pathlib import Path

from nsqc.access.rules import make
from perf.load.server import Server, ServerError, Side

READ = 1 << 20
OK_BYTES = 10
MESSAGE_HEAD = 26       # of a frame's data, before the body
HEAD = 8                # of a frame
BAR = 0.98              # speed with rules, relative to that without
# Messages per round.
COUNTS = {"PUB, 200 bytes": 400_000, "PUB, 100 KB": 3_000, "POST /pub, 200 bytes": 60_000, "consume": 300_000}
RULES = """
anonymous = ["operator"]
[roles.operator]
admin = ["*"]
stats = ["*"]
[users.bench]
tokens = ["{stored}"]
publish = ["*"]
consume = ["*"]
"""


class Client:
    """A connection over TCP. token: sent by AUTH; empty: no AUTH."""

    def __init__(self, port: int, token: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.sock.sendall(b"  V2")
        if token:
            self.sock.sendall(b"AUTH\n" + struct.pack(">i", len(token)) + token.encode())
            if self.sock.recv(READ)[4:HEAD] != bytes(4):
                raise ServerError("AUTH is refused")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def take(self, size: int) -> None:
        """Reads this many bytes."""
        while size > 0:
            size -= len(self.sock.recv(min(READ, size)))


def publish(server: Server, token: str, size: int, count: int) -> None:
    """PUBs, as many at once as fit into 200 KB."""
    one = b"PUB load\n" + struct.pack(">i", size) + b"x" * size
    at_once = max(1, 200_000 // len(one))
    with Client(server.tcp, token) as client:
        for _ in range(count // at_once):
            client.sock.sendall(one * at_once)
            client.take(OK_BYTES * at_once)


def post(server: Server, token: str, count: int) -> None:
    """Publishes over HTTP, 200 at once. The token is sent in any case."""
    one = (f"POST /pub?topic=load HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
           "Content-Length: 200\r\n\r\n").encode() + b"x" * 200
    with socket.create_connection(("127.0.0.1", server.http), 60) as sock:
        for _ in range(2):      # the first one has its token checked
            sock.sendall(one)
            answer = sock.recv(READ)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ServerError(answer.decode())
        for _ in range(count // 200):
            sock.sendall(one * 200)
            left = len(answer) * 200
            while left:
                left -= len(sock.recv(min(READ, left)))


def consume(server: Server, token: str, count: int) -> None:
    """Takes and finishes messages of the channel."""
    with Client(server.tcp, token) as client:
        client.sock.sendall(b"SUB load ch\nRDY 2500\n")
        client.take(OK_BYTES)
        data = b""
        while count > 0:
            data += client.sock.recv(READ)
            at, finished = 0, []
            while len(data) - at >= 4 and len(data) - at >= 4 + (size := struct.unpack_from(">i", data, at)[0]):
                if size > MESSAGE_HEAD:
                    finished.append(b"FIN " + data[at + HEAD + 10:at + HEAD + MESSAGE_HEAD] + b"\n")
                at += 4 + size
            data = data[at:]
            count -= len(finished)
            client.sock.sendall(b"".join(finished))


def measure(server: Server, token: str, shown: str, quick: bool) -> dict[str, float]:
    """µs per message for each kind of work. shown: the token over HTTP."""
    counts = {name: count // 100 if quick else count for name, count in COUNTS.items()}
    works = {"PUB, 200 bytes": lambda count: publish(server, token, 200, count),
             "consume": lambda count: consume(server, token, count * 9 // 10),
             "PUB, 100 KB": lambda count: publish(server, token, 100_000, count),
             "POST /pub, 200 bytes": lambda count: post(server, shown, count)}
    found = {}
    server.channel("load", "ch")
    for name, work in works.items():
        before = server.cpu_s()
        work(counts[name])
        found[name] = (server.cpu_s() - before) / counts[name] * 1e6
    server.post("/topic/delete?topic=load")
    return found


def main() -> int:
    """0: measured; 1: something failed."""
    parser = argparse.ArgumentParser(prog="python -m perf.access.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="default 9")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    token, stored = make()
    side = Side("nsqc", tuple(shlex.split(f"{shlex.quote(sys.executable)} -m nsqc serve")))
    best: dict[bool, dict[str, float]] = {False: {}, True: {}}
    with tempfile.TemporaryDirectory(prefix="nsqc-access-") as folder:
        rules = Path(folder) / "access.toml"
        rules.write_text(RULES.format(stored=stored))
        flags = ("--mem-queue-size=50000000", "--log-level=error")
        try:
            with Server(side, *flags) as off, Server(side, *flags, f"--access-file={rules}", "--audit-level=off") as on:
                for number in range(1 if args.quick else args.rounds):
                    for with_rules in (number % 2 == 0, number % 2 == 1):
                        server = on if with_rules else off
                        found = measure(server, token if with_rules else "", token, args.quick)
                        for name, value in found.items():
                            best[with_rules][name] = min(value, best[with_rules].get(name, value))
        except (ServerError, OSError) as error:
            print(f"perf.access: {error}", file=sys.stderr)
            return 1
    print(f"| work | without rules, µs a message | with rules | speed, bar {BAR} |\n|---|---|---|---|")
    for name in COUNTS:
        without, ruled = best[False][name], best[True][name]
        print(f"| {name} | {without:.3f} | {ruled:.3f} | {without / ruled:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
