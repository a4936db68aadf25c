"""The command parser: every transcript reads the same whole, byte by byte, and cut at random."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled.wire import CommandReader


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def batch(*bodies: bytes) -> bytes:
    return sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))


TRANSCRIPTS = {
    "lines": (
        b"NOP\nRDY 5\nFIN 0123456789abcdef\r\nREQ 0123456789abcdef 100\nTOUCH 0123456789abcdef\nCLS\nSUB t c\n",
        [([b"NOP"], None), ([b"RDY", b"5"], None), ([b"FIN", b"0123456789abcdef"], None),
         ([b"REQ", b"0123456789abcdef", b"100"], None), ([b"TOUCH", b"0123456789abcdef"], None), ([b"CLS"], None),
         ([b"SUB", b"t", b"c"], None)],
        None,
    ),
    "bodies": (
        b"PUB t\n" + sized(b"hello") + b"DPUB t 50\n" + sized(b"x" * 300) + b"IDENTIFY\n" + sized(b"{}")
        + b"AUTH\n" + sized(b"secret\n"),
        [([b"PUB", b"t"], b"hello"), ([b"DPUB", b"t", b"50"], b"x" * 300), ([b"IDENTIFY"], b"{}"),
         ([b"AUTH"], b"secret\n")],
        None,
    ),
    "body that looks like commands": (
        b"PUB t\n" + sized(b"NOP\nPUB t\n\x00\x00\x00\x01") + b"NOP\n",
        [([b"PUB", b"t"], b"NOP\nPUB t\n\x00\x00\x00\x01"), ([b"NOP"], None)],
        None,
    ),
    "multi-publish": (
        b"MPUB t\n" + batch(b"a", b"bb", b"c" * 1000) + b"NOP\n",
        [([b"MPUB", b"t"], batch(b"a", b"bb", b"c" * 1000)[4:]), ([b"NOP"], None)],
        None,
    ),
    "empty words": (b"SUB  t\n\n \n", [([b"SUB", b"", b"t"], None), ([b""], None), ([b"", b""], None)], None),
    "more words than are kept": (b"SUB a b c d e f\n", [([b"SUB", b"a", b"b", b"c"], None)], None),
    "only one carriage return goes": (b"NOP\r\r\n", [([b"NOP\r"], None)], None),
    "unknown and lower-case": (b"nop\nHELP me\n\xff\xfe\x00\n",
                               [([b"nop"], None), ([b"HELP", b"me"], None), ([b"\xff\xfe\x00"], None)], None),
    "zero size": (b"NOP\nPUB t\n" + struct.pack(">i", 0), [([b"NOP"], None)], "bad size"),
    "negative size": (b"PUB t\n" + struct.pack(">i", -7), [], "bad size"),
    "too big": (b"PUB t\n" + struct.pack(">i", 10_001), [], "too big"),
    "zero messages": (b"MPUB t\n" + sized(struct.pack(">i", 0)), [], "bad count"),
    "more messages than a body can hold": (b"MPUB t\n" + sized(struct.pack(">i", 1 << 28)), [], "bad count"),
    "bad message size": (b"MPUB t\n" + sized(struct.pack(">i", 2) + sized(b"good") + struct.pack(">i", 0)), [],
                         "bad message size"),
    "message too big": (b"MPUB t\n" + sized(struct.pack(">i", 1) + struct.pack(">i", 10_001)), [], "message too big"),
    "declared without the count": (
        b"MPUB t\n" + struct.pack(">ii", 10, 2) + sized(b"x") + sized(b"y") + b"NOP\n",
        [([b"MPUB", b"t"], batch(b"x", b"y")[4:]), ([b"NOP"], None)], None),
    "declared without sizes": (
        b"MPUB t\n" + struct.pack(">ii", 2, 2) + sized(b"x") + sized(b"y") + b"NOP\n",
        [([b"MPUB", b"t"], batch(b"x", b"y")[4:]), ([b"NOP"], None)], None),
    "declared too large": (
        b"MPUB t\n" + struct.pack(">ii", 50_000, 1) + sized(b"x") + b"NOP\n",
        [([b"MPUB", b"t"], batch(b"x")[4:]), ([b"NOP"], None)], None),
    "declared as nothing": (b"MPUB t\n" + struct.pack(">ii", 0, 1) + sized(b"x"), [], "bad size"),
    "declared above the limit": (b"MPUB t\n" + struct.pack(">ii", 50_001, 1) + sized(b"x"), [], "too big"),
    "messages that fill the limit": (
        b"MPUB t\n" + struct.pack(">ii", 8, 5) + sized(b"x" * 10_000) * 5 + b"NOP\n",
        [([b"MPUB", b"t"], batch(*[b"x" * 10_000] * 5)[4:]), ([b"NOP"], None)], None),
    "messages beyond the limit": (
        b"MPUB t\n" + struct.pack(">ii", 8, 6) + sized(b"x" * 10_000) * 5 + struct.pack(">i", 1), [], "overrun"),
}
LIMITS = {"max_message": 10_000, "max_body": 50_000}


def read(pieces) -> tuple[list, str | None]:
    reader = CommandReader(**LIMITS)
    commands = []
    for piece in pieces:
        commands += reader.feed(piece)
    return commands, reader.failed


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript_however_it_is_cut(name):
    data, commands, failed = TRANSCRIPTS[name]
    assert read([data]) == (commands, failed)
    assert read([data[at:at + 1] for at in range(len(data))]) == (commands, failed)
    rng = random.Random(name)
    for _ in range(50):
        cuts = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.randint(1, 8))))
        assert read([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]) == (commands, failed)


def test_line_of_16_kib_is_the_longest():
    reader = CommandReader()
    assert reader.feed(b"A" * 16383 + b"\n") == [([b"A" * 16383], None)]
    assert reader.failed is None
    reader.feed(b"A" * 16384 + b"\n")
    assert reader.failed == "line too long"


def test_unfinished_long_line_is_not_kept_for_ever():
    reader = CommandReader()
    reader.feed(b"A" * 16384)
    assert reader.failed == "line too long"


def test_errors_are_noticed_before_the_body_has_come():
    reader = CommandReader(max_message=10)
    reader.feed(b"MPUB t\n" + struct.pack(">iii", 5000, 1, 11))
    assert reader.failed == "message too big"


def test_nothing_is_kept_between_whole_commands():
    reader = CommandReader()
    reader.feed(b"PUB t\n" + sized(b"x" * 500) + b"NO")
    assert reader.kept == 2
    reader.feed(b"P\n")
    assert reader.kept == 0


WITH_BODY = (b"PUB", b"MPUB", b"DPUB", b"DMPUB", b"IDENTIFY", b"AUTH")
words = st.lists(st.binary(min_size=1, max_size=12).filter(lambda w: not set(w) & set(b" \r\n")), min_size=1, max_size=3)
lines = words.filter(lambda w: w[0] not in WITH_BODY).map(
    lambda w: (b" ".join(w) + b"\n", (w, None)))
publishes = st.binary(min_size=1, max_size=200).map(lambda b: (b"PUB topic\n" + sized(b), ([b"PUB", b"topic"], b)))
batches = st.builds(lambda words, b: (b" ".join(words) + b"\n" + batch(*b), (words, batch(*b)[4:])),
                    st.sampled_from([[b"MPUB", b"topic"], [b"DMPUB", b"topic", b"1000"]]),
                    st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5))


@given(st.lists(lines | publishes | batches, max_size=12), st.randoms(use_true_random=False))
def test_any_commands_in_any_pieces(commands, rng):
    data = b"".join(sent for sent, _ in commands)
    pieces, at = [], 0
    while at < len(data):
        step = rng.randint(1, 60)
        pieces.append(data[at:at + step])
        at += step
    assert read(pieces) == ([read_as for _, read_as in commands], None)


@given(st.lists(st.binary(max_size=80), max_size=10))
def test_garbage_reads_the_same_in_one_piece(pieces):
    assert read(pieces) == read([b"".join(pieces)])
