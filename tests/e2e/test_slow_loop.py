"""--slow-loop of both servers: the names of real work."""

import re
import struct
import time

from nsqc.loop.slow import EVERY_S
from tests.support.daemon import batch, wait_until
from tests.support.lookupd import LookupServer


def names(node) -> str:
    return node.http("GET", "/debug/slow")[1].decode()


def test_handlers_have_names(daemon):
    """With a limit of one nanosecond every iteration is too long."""
    began = time.monotonic()
    node = daemon("--slow-loop=1ns")
    client = node.connect()
    client.pub("t", *[bytes(1000)] * 3000)
    page = names(node)
    assert re.search(r"took .* of it in (commands of|a slice of) client\(127\.0\.0\.1:\d+\), publishing to topic t$", page,
                     re.MULTILINE), page
    consumer = node.connect().sub("t", "c", 2500)
    consumer.messages(2500, finish=True)
    wait_until(lambda: re.search(r"consuming channel c of topic t|a slice of channel c of topic t|output to clients",
                                 names(node)))

    def heap_is_named() -> bool:
        """Only the worst are kept: on a busy machine others exceed them sometimes."""
        node.http("GET", "/debug/pprof/heap?x=%25s")
        return "of it in HTTP GET /debug/pprof/heap?x=%25s (127.0.0.1:" in names(node)

    wait_until(heap_is_named)
    wait_until(lambda: "WARNING: LOOP: an iteration took" in node.log)
    assert node.log.count(" LOOP: ") <= 1 + (time.monotonic() - began) // EVERY_S
    assert node.stop() == 0
    assert re.search(r"LOOP: the worst of \d+ more slow iterations took ", node.log)


def test_off_and_on_again(daemon, tmp_path):
    config = tmp_path / "nsqc.cfg"
    config.write_text('slow_loop = "0s"\n')
    node = daemon(f"--config={config}")
    assert names(node) == "nothing is watched: see --slow-loop\n"
    config.write_text('slow_loop = "1ns"\n')
    node.process.send_signal(1)
    wait_until(lambda: "slow_loop is now 1ns" in node.log)
    wait_until(lambda: names(node).startswith("iterations of the last hour that took more than 1 ns: "))
    config.write_text('slow_loop = "0s"\n')
    node.process.send_signal(1)
    wait_until(lambda: "slow_loop is now 0s" in node.log)
    assert names(node).startswith("nothing is watched: see --slow-loop\n")
    node.connect().pub("t", b"x")
    assert node.stop() == 0


def test_compressed_and_cut_off_clients_do_no_harm(daemon):
    """Names contain clients that may be gone already."""
    node = daemon("--slow-loop=1ns")
    for data in (b"  V2", b"  V2SUB t c\n", b"  V2IDENTIFY\n" + struct.pack(">i", 14) + b'{"deflate": 1}', b"nonsense",
                 b"  V2MPUB t\n" + struct.pack(">i", 20) + batch(b"x")):
        client = node.connect(data)
        client.close()
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    assert "uncaught" not in node.log


def test_the_lookup_server(tmp_path):
    lookup = LookupServer(tmp_path / "log", "--slow-loop=1ns")
    try:
        assert lookup.call("GET", "/debug/slow")[1].decode().startswith("iterations of the last hour")
    finally:
        assert lookup.stop() == 0
