"""Rates and the daemon's CPU time over plain, TLS, deflate and snappy connections, as ratios to plain in the same run.

    python -m perf.transports.run [--rounds 3] [--count 1000000] [--transports tls,snappy] [--nsqc 'CMD'] [--nsqd PATH]

One connection, 200-byte messages of an access log, MPUB of 2,000 encoded beforehand, RDY 2500. Each transport has its
own daemon, publishes to it and consumes from it; the transports alternate, results are medians over the rounds.
The client is C on OpenSSL and zlib. Then handshakes per second on the HTTPS port, each on a new connection, by two
processes of `openssl s_time`, with a certificate of RSA 2048. With --nsqd, an nsqd does the same, alternating.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import cramjam

from perf import programs
from perf.load import work
from perf.load.run import machine
from perf.load.server import Server, ServerError, Side
from perf.programs import BuildError
from tests.support.ports import free_port

TRANSPORTS = ("plain", "tls", "snappy", "tls+snappy", "deflate", "tls+deflate")
BATCH, BODY_BYTES, RDY = 2000, 200, 2500
DEFLATE_SHARE = 5  # divisor of the message count: deflate takes this much longer
HANDSHAKERS, HANDSHAKE_S = 2, 3
NSQD = "nsqd "              # prefix of its results; those of nsqc have none
BARS = {"tls": 0.5, "snappy": 0.3}  # of the plain consume rate


def log_line(numbers: random.Random) -> bytes:
    """A line of an access log, padded or cut to the size of a body."""
    address = ".".join(str(numbers.randrange(1, 255)) for _ in range(4))
    line = (f'{address} - - '
            f'[21/Nov/2026:{numbers.randrange(24):02}:{numbers.randrange(60):02}:{numbers.randrange(60):02} +0000] '
            f'"GET /items/{numbers.randrange(10**6)}?session={numbers.getrandbits(64):016x} HTTP/1.1" 200 '
            f'{numbers.randrange(10**5)} "https://shop.example/list" "Mozilla/5.0 (X11; Linux x86_64; rv:145.0)"')
    return line.encode().ljust(BODY_BYTES, b" ")[:BODY_BYTES]


def request(topic: str) -> bytes:
    """An MPUB of the batch."""
    numbers = random.Random(1)
    bodies = [log_line(numbers) for _ in range(BATCH)]
    body = struct.pack(">i", BATCH) + b"".join(struct.pack(">i", len(entry)) + entry for entry in bodies)
    return b"MPUB " + topic.encode() + b"\n" + struct.pack(">i", len(body)) + body


def encoded(data: bytes, transport: str) -> bytes:
    """The data as the transport's codec encodes it, so that it can be repeated within one stream."""
    if "deflate" in transport:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
    if "snappy" not in transport:
        return data
    # The framing format puts a checksum before each block; the client sends the head of the stream.
    stream = bytes(cramjam.snappy.compress(data))
    return stream[10:]


class Bench:
    """The workload, over one transport at a time."""

    def __init__(self, sides: list[Side], folder: Path, count: int, seconds: int):
        self.sides, self.folder, self.count, self.seconds = sides, folder, count, seconds
        self.client = programs.client_with_transports()
        self.warm = work.Bench(programs.client(), work.Scale()).warm
        for name in ("cert", "key"):
            (folder / name).unlink(missing_ok=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=perf",
                        "-keyout", str(folder / "key"), "-out", str(folder / "cert")], check=True, capture_output=True)
        for transport in TRANSPORTS:
            (folder / transport).write_bytes(encoded(request("load"), transport))

    def round(self, transports: list[str], backwards: bool) -> dict[str, dict[str, float]]:
        """Results by transport; those of nsqd have a prefix. In every second round all goes backwards."""
        step = -1 if backwards else 1
        done: dict[str, dict[str, float]] = {}
        for transport in transports[::step]:
            done[transport] = {}
            for side in self.sides[::step]:
                found = self.measure(side, transport) | (self.handshakes(side) if transport == "tls" else {})
                done[transport] |= {side.name + key: value for key, value in found.items()}
        return done

    def handshakes(self, side: Side) -> dict[str, float]:
        """TLS handshakes per second, and the daemon's CPU in µs for each. Raises ServerError."""
        port = free_port()
        with Server(side, *self.certificate(), f"--https-address=127.0.0.1:{port}") as server:
            cpu, began = server.cpu_s(), time.perf_counter()
            clients = [subprocess.Popen(["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new",
                                         "-time", str(self.seconds)], stdout=subprocess.PIPE, text=True)
                       for _ in range(HANDSHAKERS)]
            outs = [client.communicate(timeout=300)[0] for client in clients]
            seconds, cpu = time.perf_counter() - began, server.cpu_s() - cpu
        counts = [re.search(r"(\d+) connections in \d+ real seconds", out) for out in outs]
        if not all(counts):
            raise ServerError(f"openssl s_time: {outs}")
        count = sum(int(found[1]) for found in counts if found)
        return {"handshakes rate": count / seconds, "handshakes cpu": cpu / count * 1e6}

    def certificate(self) -> tuple[str, str]:
        """The flags that name it."""
        return f"--tls-cert={self.folder / 'cert'}", f"--tls-key={self.folder / 'key'}"

    def measure(self, side: Side, transport: str) -> dict[str, float]:
        """Rates in messages/s and the daemon's CPU in µs a message."""
        count = self.count // (DEFLATE_SHARE if "deflate" in transport else 1) // BATCH * BATCH
        flags = (*self.certificate(), f"--mem-queue-size={2 * self.count}", "--https-address=127.0.0.1:0")
        self.warm(count)
        with Server(side, *flags) as server:
            server.channel("load", "ch")
            return (self._run(server, "pub", transport, count, "-f", self.folder / transport, "-b", BATCH)
                    | self._run(server, "sub", transport, count, "-r", RDY))

    def _run(self, server: Server, mode: str, transport: str, count: int, *options: object) -> dict[str, float]:
        cpu = server.cpu_s()
        done = subprocess.run([self.client, f"transport-{mode}", "-p", str(server.tcp), "-x", transport,
                               "-n", str(count), *map(str, options)], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise ServerError(f"{mode} {transport}: {done.stderr.strip()}")
        return {f"{mode} rate": count / json.loads(done.stdout)["seconds"],
                f"{mode} cpu": (server.cpu_s() - cpu) / count * 1e6}


def table(rounds: list[dict[str, dict[str, float]]], nsqd: bool) -> str:
    """The medians as Markdown; ratios are those within the rounds."""
    lines = ["| transport | publish/s | to plain | daemon µs | consume/s | to plain | daemon µs | CPU, plain to it |",
             "|---|---|---|---|---|---|---|---|"]
    for transport in rounds[0]:
        cells = [transport]
        for mode in ("pub", "sub"):
            cells.append(f"{median(rounds, transport, f'{mode} rate'):,.0f}")
            cells.append(f"{ratio(rounds, transport, f'{mode} rate'):.2f}")
            cells.append(f"{median(rounds, transport, f'{mode} cpu'):.3f}")
        cells.append(f"{1 / ratio(rounds, transport, 'sub cpu'):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    if nsqd:
        lines += ["", "| transport | nsqd: publish/s | daemon µs | nsqc to it | consume/s | daemon µs | nsqc to it |",
                  "|---|---|---|---|---|---|---|"]
        for transport in rounds[0]:
            cells = [transport]
            for mode in ("pub", "sub"):
                cells.append(f"{median(rounds, transport, f'{NSQD}{mode} rate'):,.0f}")
                cells.append(f"{median(rounds, transport, f'{NSQD}{mode} cpu'):.3f}")
                cells.append(f"{beside_nsqd(rounds, transport, f'{mode} rate'):.2f}")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def handshakes(rounds: list[dict[str, dict[str, float]]], sides: list[Side]) -> str:
    """A line for each side."""
    return "\n".join(f"{side.name.strip() or 'nsqc'}: "
                     f"{median(rounds, 'tls', f'{side.name}handshakes rate'):,.0f} handshakes/s, "
                     f"{median(rounds, 'tls', f'{side.name}handshakes cpu'):,.0f} µs of the daemon each"
                     for side in sides)


def median(rounds: list[dict[str, dict[str, float]]], transport: str, key: str) -> float:
    return statistics.median(done[transport][key] for done in rounds)


def beside_nsqd(rounds: list[dict[str, dict[str, float]]], transport: str, key: str) -> float:
    return statistics.median(done[transport][key] / done[transport][NSQD + key] for done in rounds)


def ratio(rounds: list[dict[str, dict[str, float]]], transport: str, key: str) -> float:
    return statistics.median(done[transport][key] / done["plain"][key] for done in rounds)


def main() -> int:
    """0: measured; 1: something failed."""
    parser = argparse.ArgumentParser(prog="python -m perf.transports.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--count", type=int, default=1_000_000, help="messages a transport; default 1000000")
    parser.add_argument("--transports", default=",".join(TRANSPORTS[1:]),
                        help="comma-separated; plain is always measured")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--nsqd", metavar="PATH", help="an nsqd to measure as well")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    transports = ["plain", *(transport for transport in args.transports.split(",") if transport != "plain")]
    if unknown := set(transports) - set(TRANSPORTS):
        parser.error(f"no such transport: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="nsqc-transports-") as folder:
        try:
            count, seconds = (20_000, 1) if args.quick else (args.count, HANDSHAKE_S)
            sides = [Side("", tuple(shlex.split(args.nsqc))), *([Side(NSQD, (args.nsqd,))] if args.nsqd else [])]
            bench = Bench(sides, Path(folder), count, seconds)
            rounds = [bench.round(transports, number % 2 == 1) for number in range(1 if args.quick else args.rounds)]
        except (BuildError, ServerError, OSError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
            return 1
    print(machine() + "\n")
    print(table([{transport: done[transport] for transport in transports} for done in rounds], bool(args.nsqd)))
    if "tls" in transports:
        print("\n" + handshakes(rounds, sides))
    for transport, bar in BARS.items():
        if transport in transports:
            share = ratio(rounds, transport, "sub rate")
            verdict = "held" if share >= bar else "MISSED"
            print(f"consuming over {transport}: {share:.2f} of plain, goal {bar}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
