"""Deflate and snappy connections: messages through them, and the treatment of hostile peers."""

import json
import random
import socket
import struct
import zlib

import cramjam
import pytest

from nsqc.client.options import CONNECTION
from nsqc.options.declared import Options
from nsqc.wire import codecs
from nsqc.wire.codecs import Deflate, Snappy
from nsqc.wire.stats import ClientStats
from tests.compiled.wire import checksum
from tests.support.daemon import batch, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import compress, connect, identify

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
CODECS = ("deflate", "snappy")
MIB = 1024 * 1024
BOMB_BYTES = 32 * MIB     # what a bomb of at least twice that may leave: the allocator and threads take some


def test_every_codec_has_its_options_and_its_flag():
    for name, kind in codecs.CODECS.items():
        assert hasattr(Options(), name)
        assert hasattr(Options(), f"max_{name}_level") == (kind.levels > 0)
        assert hasattr(ClientStats(), name)
        assert name in CONNECTION


def raw(client):
    """The socket below the codec."""
    return client.sock.sock


def end_of(client) -> tuple[int, bytes]:
    """The last frame, after which the connection must close."""
    frame = client.frame()
    assert client.frame() is None
    return frame


def snappy_chunks(data: bytes) -> bytes:
    found = []
    for at in range(0, len(data), 65536):
        piece = data[at:at + 65536]
        crc = checksum(piece)
        block = struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
        block += bytes(cramjam.snappy.compress_raw(piece))
        found.append(b"\x00" + len(block).to_bytes(3, "little") + block)
    return b"".join(found)


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


# ---------------------------------------------------------------------- use


@pytest.mark.parametrize("codec", CODECS)
def test_an_upgrade_comes_behind_answers_that_wait_for_the_disk(daemon, codec):
    client = daemon("--mem-queue-size=0").connect()
    wanted = json.dumps({"feature_negotiation": True, codec: True}).encode()
    client.send(b"PUB t\n" + struct.pack(">i", 4) + b"body" + b"IDENTIFY\n" + struct.pack(">i", len(wanted)) + wanted)
    assert client.frame() == (0, b"OK")
    assert json.loads(client.frame()[1])[codec] is True
    compress(client, Deflate(6) if codec == "deflate" else Snappy()).ok("PUB t", b"more")


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_all_sizes_both_ways(daemon, codec):
    node = daemon()
    sender, taker = connect(node, codec), connect(node, codec).sub("t", "c", 100)
    numbers = random.Random(1)
    bodies = [b"x", bytes(70_000), numbers.randbytes(200_000), b"hello " * 100_000, numbers.randbytes(65_536)]
    for body in bodies:
        sender.pub("t", body)
    sender.pub("t", *[b"m%d" % n for n in range(1000)])
    found = [message.body for message in taker.messages(1005, finish=True)]
    assert sorted(found) == sorted(bodies + [b"m%d" % n for n in range(1000)])
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)


@pytest.mark.parametrize("codec", CODECS)
def test_pipelined_commands_that_are_cut_anywhere(daemon, codec):
    node = daemon()
    client = connect(node, codec)
    packed = client.sock.codec.pack(b"".join(b"PUB t\n\x00\x00\x00\x05%05d" % n for n in range(500)) + b"NOP\n")
    for at in range(0, len(packed), 7):
        raw(client).sendall(packed[at:at + 7])
    for _ in range(500):
        assert client.frame() == (0, b"OK")
    assert node.stats("t")["message_count"] == 500


@pytest.mark.parametrize("codec", CODECS)
def test_statistics_tell(daemon, codec):
    node = daemon()
    client = connect(node, codec).sub("t", "c")
    shown = node.channel("t", "c")["clients"][0]
    assert {name: shown[name] for name in (*CODECS, "tls")} == {
        "deflate": codec == "deflate", "snappy": codec == "snappy", "tls": False}
    client.close()


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_leaves_at_once(daemon, codec):
    node = daemon("--max-output-buffer-timeout=1h")
    taker = connect(node, codec, output_buffer_timeout=3_600_000).sub("t", "c", 100)
    node.connect().pub("t", b"x")
    assert taker.message().body == b"x"


def netty_frame(inflater, read: bytes) -> tuple[int, bytes]:
    """JavaNSQClient's view of one read: netty passes on output up to twice its size, and that is a frame."""
    buffer = inflater.decompress(read, 2 * len(read))
    assert not inflater.unconsumed_tail, "a frame in two buffers"
    size, kind = struct.unpack_from(">ii", buffer)
    assert len(buffer) == 4 + size
    return kind, buffer[8:]


@pytest.mark.parametrize("level", [1, 6])
def test_small_frames_come_whole_from_one_read_of_netty(daemon, level):
    node = daemon()
    client = node.connect()
    answer = identify(client, deflate=True, deflate_level=level, heartbeat_interval=60_000)
    assert answer["deflate"]
    inflater = zlib.decompressobj(-15)
    client.sock.settimeout(WAIT_SECONDS)
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)

    def send(command: bytes) -> None:
        client.send(packer.compress(command) + packer.flush(zlib.Z_SYNC_FLUSH))

    def read() -> tuple[int, bytes]:
        return netty_frame(inflater, client.sock.recv(1024))

    assert netty_frame(inflater, client._kept or client.sock.recv(1024)) == (0, b"OK")
    send(b"SUB t c\n")
    assert read() == (0, b"OK")
    send(b"RDY 1\n")
    producer = node.connect()
    for body in (b"x" * 20, b"x" * 20, b'{"a": 1, "b": 1, "c": 1, "d": 1}', bytes(900), b"hello " * 150, b"z"):
        producer.pub("t", body)
        kind, data = read()
        assert (kind, data[26:]) == (2, body)
        send(b"FIN " + data[10:26] + b"\n")
    send(b"BOGUS\n")
    assert read() == (1, b"E_INVALID invalid command BOGUS")


@pytest.mark.parametrize("codec", CODECS)
def test_heartbeats_and_errors_come_encoded(daemon, codec):
    client = connect(daemon(), codec, heartbeat_interval=1000)
    client.sock.settimeout(WAIT_SECONDS)
    assert client.sock.recv(100) == b"\x00\x00\x00\x0f\x00\x00\x00\x00_heartbeat_"
    client.command("BOGUS")
    assert end_of(client) == (1, b"E_INVALID invalid command BOGUS")


def test_what_is_pipelined_behind_identify_is_taken_as_compressed(daemon):
    client = daemon().connect()
    codec = Deflate(6)
    body = b'{"feature_negotiation": true, "deflate": true}'
    client.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body + codec.pack(b"PUB t\n\x00\x00\x00\x01x"))
    assert client.frame()[1].startswith(b"{")
    codec.put(client._kept)
    seen = b""
    while seen.count(b"OK") < 2:
        seen += codec.get()
        codec.put(client.sock.recv(4096) if seen.count(b"OK") < 2 else b"")
    assert seen == b"\x00\x00\x00\x06\x00\x00\x00\x00OK" * 2
    client.close()


@pytest.mark.parametrize("flag,codec", [("--deflate=false", "deflate"), ("--snappy=false", "snappy")])
def test_switched_off(daemon, flag, codec):
    client = daemon(flag).connect()
    assert identify(client, **{codec: True})[codec] is False
    client.ok("SUB t c")


def test_a_second_upgrade_is_refused(daemon):
    client = connect(daemon(), "snappy")
    client.command("IDENTIFY", b'{"feature_negotiation": true, "deflate": true}')
    assert end_of(client) == (1, b"E_IDENTIFY_FAILED IDENTIFY failed connection is upgraded already")


# ---------------------------------------------------------------------- hostile peers


def test_a_deflate_bomb_in_a_body_ends_at_the_limit_for_bodies(daemon):
    node = daemon()
    client = connect(node, "deflate")
    before = node.rss()
    raw(client).sendall(deflated(b"PUB t\n" + struct.pack(">i", 2**31 - 1) + bytes(400 * MIB)))
    assert end_of(client) == (1, b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576")
    assert node.rss() - before < BOMB_BYTES


def test_a_deflate_bomb_without_a_line_end_ends_at_the_limit_for_lines(daemon):
    node = daemon()
    client = connect(node, "deflate")
    before = node.rss()
    raw(client).sendall(deflated(b"A" * (400 * MIB)))
    assert client.frame() is None
    assert node.rss() - before < BOMB_BYTES


def test_a_bomb_of_commands_lets_others_go_on_and_takes_no_memory(daemon):
    node = daemon()
    bomber, other = connect(node, "deflate"), node.connect()
    before = node.rss()
    bomb = deflated(b"NOP\n" * (50 * MIB) + b"PUB t\n\x00\x00\x00\x01x")
    assert len(bomb) < MIB
    raw(bomber).sendall(bomb)
    for _ in range(20):
        other.pub("u", b"y")
    assert node.rss() - before < BOMB_BYTES
    assert bomber.frame(WAIT_SECONDS) == (0, b"OK")


@pytest.mark.parametrize("limit", [MIB, 4096])
def test_a_bomb_of_publishes_whose_answers_are_not_read_stops_at_a_bound(daemon, limit):
    """Slow: a million publishes are answered, and each answer is read."""
    node = daemon(f"--max-buffered-bytes={limit}")
    client = connect(node, "deflate", heartbeat_interval=-1)
    before = node.rss()
    one = batch(*[b"x"])
    command = b"MPUB t#ephemeral\n" + struct.pack(">i", len(one)) + one
    raw(client).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw(client).sendall(deflated(command * 1_000_000))
    assert node.connect().quiet(1)
    assert node.rss() - before < BOMB_BYTES + 24 * limit
    # The server runs only as many of its commands as it takes answers for: its buffers and the socket's hold the rest.
    assert node.stats("t#ephemeral")["message_count"] < 20 * (limit + 4 * MIB) // 10
    count = 0
    while count < 1_000_000:
        assert client.frame(WAIT_SECONDS) == (0, b"OK")
        count += 1


def test_a_snappy_bomb_of_skippable_chunks_is_not_kept(daemon):
    node = daemon()
    client = connect(node, "snappy")
    raw(client).sendall(IDENTIFIER)
    before = node.rss()
    for _ in range(4):
        raw(client).sendall(b"\xfe\xff\xff\xff" + bytes(0xFFFFFF))
    raw(client).sendall(snappy_chunks(b"PUB t\n\x00\x00\x00\x01x"))
    assert client.frame() == (0, b"OK")
    assert node.rss() - before < BOMB_BYTES


@pytest.mark.parametrize("codec,data,text", [
    ("deflate", b"\xff" * 64, b"E_INVALID deflate data is corrupt"),
    ("deflate", b"PUB t\n\x00\x00\x00\x01x", b"E_INVALID deflate data is corrupt"),
    ("snappy", b"PUB t\n\x00\x00\x00\x01x", b"E_INVALID snappy stream does not begin with its identifier"),
    ("snappy", IDENTIFIER + b"\x01\x05\x00\x00aaaax", b"E_INVALID snappy checksum is wrong"),
    ("snappy", IDENTIFIER + b"\x00\xff\xff\xff", b"E_INVALID snappy chunk length 16777215 is invalid"),
    ("snappy", IDENTIFIER + b"\x00\x0a\x00\x00aaaa\xff\xff\xff\xff\x0fx", b"E_INVALID snappy block length is invalid"),
    ("snappy", IDENTIFIER + b"\x02\x01\x00\x00x", b"E_INVALID snappy chunk type 2 is unknown"),
])
def test_garbage_is_answered_and_closed(daemon, codec, data, text):
    node = daemon()
    client = connect(node, codec)
    raw(client).sendall(data)
    assert end_of(client) == (1, text)
    node.connect().pub("t", b"others go on")


@pytest.mark.parametrize("codec,data", [("deflate", deflated(b"NOP\n" * 50)[:-3]),
                                        ("snappy", IDENTIFIER + snappy_chunks(b"NOP\n" * 50)[:-3])])
def test_a_truncated_stream_is_an_error(daemon, codec, data):
    client = connect(daemon(), codec)
    raw(client).sendall(data)
    client.sock.shutdown(socket.SHUT_WR)
    assert end_of(client) == (1, b"E_INVALID %b stream is cut short" % codec.encode())


@pytest.mark.parametrize("codec", CODECS)
def test_a_command_cut_short_within_a_whole_stream_is_its_own_error(daemon, codec):
    client = connect(daemon(), codec)
    client.send(b"PUB t\n\x00\x00\x00\x05abc")
    client.sock.shutdown(socket.SHUT_WR)
    assert end_of(client) == (1, b"E_BAD_MESSAGE PUB failed to read message body")


def test_the_end_of_a_deflate_stream_ends_the_connection(daemon):
    client = connect(daemon(), "deflate")
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    raw(client).sendall(packer.compress(b"PUB t\n\x00\x00\x00\x01x") + packer.flush())
    assert end_of(client) == (0, b"OK")


def test_random_damage_closes_only_the_damaged_connection(daemon):
    node = daemon()
    numbers = random.Random(3)
    good = snappy_chunks(b"PUB t\n\x00\x00\x00\x01x" * 20)
    for _ in range(60):
        client = connect(node, "snappy")
        broken = bytearray(good)
        broken[numbers.randrange(len(broken))] ^= 1 << numbers.randrange(8)
        raw(client).sendall(IDENTIFIER + bytes(broken))
        client.sock.shutdown(socket.SHUT_WR)
        while client.frame() is not None:
            pass
        client.close()
    node.connect().pub("t", b"x")
