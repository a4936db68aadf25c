"""Rates and the daemon's CPU time over plain, TLS, deflate and snappy connections, as ratios to plain in the same run.

    python -m perf.transports.run [--rounds 3] [--count 1000000] [--ways tls,snappy] [--nsqc 'CMD'] [--quick]

One connection, 200-byte messages of an access log, MPUB of 2,000 encoded beforehand, RDY 2500. Each way publishes into
a daemon of its own and consumes what it has published; the ways take turns, the figures are medians over the rounds.
The client is C on OpenSSL and zlib.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import cramjam

from perf.load import build, work
from perf.load.build import BuildError, program
from perf.load.server import Server, ServerError, Side

WAYS = ("plain", "tls", "snappy", "tls+snappy", "deflate", "tls+deflate")
BATCH, BODY_BYTES, RDY = 2000, 200, 2500
DEFLATE_SHARE = 5  # of the messages of the other ways: it takes so much longer
SNAPPY_CHUNK = 65536
BARS = {"tls": 0.5, "snappy": 0.3}  # of the plain consume rate
HERE = Path(__file__).resolve().parent


def client() -> Path:
    """The load client, compiled if need be. Raises BuildError."""
    try:
        return program("ways", sorted(HERE.glob("*.c")), "-lssl", "-lcrypto", "-lz")
    except BuildError as error:
        if "openssl/" in str(error) or "zlib.h" in str(error):
            raise BuildError("the client needs OpenSSL's and zlib's headers (Debian: apt-get install libssl-dev "
                             "zlib1g-dev)") from None
        raise


def log_line(numbers: random.Random) -> bytes:
    """An access log's line, padded or cut to the size of a body."""
    address = ".".join(str(numbers.randrange(1, 255)) for _ in range(4))
    line = (f'{address} - - '
            f'[21/Nov/2026:{numbers.randrange(24):02}:{numbers.randrange(60):02}:{numbers.randrange(60):02} +0000] '
            f'"GET /items/{numbers.randrange(10**6)}?session={numbers.getrandbits(64):016x} HTTP/1.1" 200 '
            f'{numbers.randrange(10**5)} "https://shop.example/list" "Mozilla/5.0 (X11; Linux x86_64; rv:145.0)"')
    return line.encode().ljust(BODY_BYTES, b" ")[:BODY_BYTES]


def request(topic: str) -> bytes:
    """An MPUB."""
    numbers = random.Random(1)
    bodies = [log_line(numbers) for _ in range(BATCH)]
    body = struct.pack(">i", BATCH) + b"".join(struct.pack(">i", len(one)) + one for one in bodies)
    return b"MPUB " + topic.encode() + b"\n" + struct.pack(">i", len(body)) + body


def encoded(data: bytes, way: str) -> bytes:
    """Bytes that may be sent again and again within a stream of the way's codec."""
    if "deflate" in way:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
    if "snappy" not in way:
        return data
    # The framing format puts a checksum before each block; the whole stream's head comes from the client.
    stream = bytes(cramjam.snappy.compress(data))
    return stream[10:]


class Bench:
    """The ways, one at a time."""

    def __init__(self, side: Side, folder: Path, count: int):
        self.side, self.folder, self.count = side, folder, count
        self.client = client()
        self.warm = work.Bench(build.client(), work.Scale()).warm
        for name in ("cert", "key"):
            (folder / name).unlink(missing_ok=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=perf",
                        "-keyout", str(folder / "key"), "-out", str(folder / "cert")], check=True, capture_output=True)
        for way in WAYS:
            (folder / way).write_bytes(encoded(request("load"), way))

    def measure(self, way: str) -> dict[str, float]:
        """Rates in messages/s and the daemon's CPU in µs a message."""
        count = self.count // (DEFLATE_SHARE if "deflate" in way else 1) // BATCH * BATCH
        flags = (f"--tls-cert={self.folder / 'cert'}", f"--tls-key={self.folder / 'key'}",
                 "--mem-queue-size=50000000", "--https-address=127.0.0.1:0")
        self.warm(count)
        with Server(self.side, *flags) as server:
            server.channel("load", "ch")
            return (self._work(server, "pub", way, count, self.folder / way, BATCH)
                    | self._work(server, "sub", way, count, "ch", RDY))

    def _work(self, server: Server, mode: str, way: str, count: int, *more: object) -> dict[str, float]:
        cpu = server.cpu_s()
        done = subprocess.run([self.client, mode, str(server.tcp), way, str(count), "load", *map(str, more)],
                              capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise ServerError(f"{mode} {way}: {done.stderr.strip()}")
        return {f"{mode} rate": count / json.loads(done.stdout)["seconds"],
                f"{mode} cpu": (server.cpu_s() - cpu) / count * 1e6}


def table(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Medians; ratios are those within the rounds."""
    lines = ["| way | publish/s | to plain | daemon µs | consume/s | to plain | daemon µs | CPU, plain to it |",
             "|---|---|---|---|---|---|---|---|"]
    for way in rounds[0]:
        cells = [way]
        for mode in ("pub", "sub"):
            cells.append(f"{statistics.median(done[way][f'{mode} rate'] for done in rounds):,.0f}")
            cells.append(f"{ratio(rounds, way, f'{mode} rate'):.2f}")
            cells.append(f"{statistics.median(done[way][f'{mode} cpu'] for done in rounds):.3f}")
        cells.append(f"{1 / ratio(rounds, way, 'sub cpu'):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratio(rounds: list[dict[str, dict[str, float]]], way: str, key: str) -> float:
    return statistics.median(done[way][key] / done["plain"][key] for done in rounds)


def main() -> int:
    """0: measured; 1: something failed."""
    parser = argparse.ArgumentParser(prog="python -m perf.transports.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--count", type=int, default=1_000_000, help="messages a way; default 1000000")
    parser.add_argument("--ways", default=",".join(WAYS[1:]), help="comma-separated; plain always goes along")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    ways = ["plain", *(way for way in args.ways.split(",") if way != "plain")]
    if unknown := set(ways) - set(WAYS):
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="nsqc-ways-") as folder:
        try:
            count = 20_000 if args.quick else args.count
            bench = Bench(Side("nsqc", tuple(shlex.split(args.nsqc))), Path(folder), count)
            rounds = [{way: bench.measure(way) for way in (ways if number % 2 == 0 else ways[::-1])}
                      for number in range(1 if args.quick else args.rounds)]
        except (BuildError, ServerError, OSError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
            return 1
    print(table([{way: done[way] for way in ways} for done in rounds]))
    for way, bar in BARS.items():
        if way in ways:
            found = ratio(rounds, way, "sub rate")
            print(f"consuming over {way}: {found:.2f} of plain, goal {bar}: {'held' if found >= bar else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
