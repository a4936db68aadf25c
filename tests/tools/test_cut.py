"""Lines to commands, and bodies of a batch to commands and lines."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from nsqc.client.commands import Batch
from nsqc.client.frames import Inflow
from nsqc.tools.lines import cut, lines, repack
from nsqc.tools.target import Parcel, packed

LINE, DEFERRED = b"MPUB t\n", b"DPUB t 5\n"


def opened(command: bytes, count: int, is_deferred: bool = False) -> list[bytes]:
    """The bodies of a command, whose sizes must be right."""
    if not is_deferred:
        size, rows = struct.unpack_from(">ii", command, len(LINE))
        assert (size, rows) == (len(command) - len(LINE) - 4, count)
    return Parcel(b"t", command, count, is_deferred)._opened()[1]


@given(st.lists(st.binary(max_size=12)), st.binary(max_size=5), st.integers(1, 4), st.integers(1, 60), st.integers(1, 10), st.booleans())
def test_every_complete_line_is_taken_once(parts, rest, rows, size, largest, is_deferred):
    text = b"".join(part.replace(b"\n", b"") + b"\n" for part in parts) + rest.replace(b"\n", b"")
    wanted = [line for line in text.split(b"\n")[:-1] if line]
    found, at = [], 0
    while True:
        command, count, at, too_large = cut(b"" if is_deferred else LINE, DEFERRED if is_deferred else b"", text, at, len(text), 10, rows,
                                            size, largest)
        assert count <= rows and (command != b"") == (count > 0)
        if count:
            bodies = opened(command, count, is_deferred)
            found += bodies
            overhead = 4 + (len(DEFERRED) if is_deferred else 0)
            assert len(bodies) == 1 or sum(len(body) + overhead for body in bodies) <= size
        elif too_large:
            end = text.find(b"\n", at)
            assert (end if end >= 0 else len(text)) - at > largest
            if end < 0:
                break
            wanted.remove(text[at:end])
            at = end + 1
        else:
            break
    assert sorted(found) == sorted(wanted)
    assert b"\n" not in text[at:] or not text[at:].strip(b"\n")


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=20), st.integers(1, 7), st.integers(1, 40))
def test_a_batch_goes_on_as_it_came(bodies, rows, size):
    inflow = Inflow(1000)
    for number, body in enumerate(bodies):
        data = struct.pack(">iqH16s", 2, number, 1, b"%016d" % number) + body
        inflow.feed(struct.pack(">i", len(data)) + data)
    batch = Batch(inflow.columns(), None)
    assert lines(batch.bodies, batch.offsets, 0, len(bodies), b"<", b">") == b"".join(b"<" + body + b">" for body in bodies)
    found, at = [], 0
    while at < len(bodies):
        command, end = repack(LINE, batch.bodies, batch.offsets, at, rows, size)
        part = opened(command, end - at)
        assert part and len(part) <= rows and (len(part) == 1 or sum(4 + len(body) for body in part) <= size)
        found, at = found + part, end
    assert found == bodies


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=9), st.booleans())
def test_halves_and_rests_are_the_same_messages(bodies, is_deferred):
    parcel = packed(b"t", DEFERRED if is_deferred else LINE, bodies, is_deferred)
    assert opened(parcel.command, parcel.count, is_deferred) == bodies
    halves = parcel.halves()
    assert [body for half in halves for body in opened(half.command, half.count, is_deferred)] == (bodies if len(bodies) > 1 else [])
    if is_deferred:
        parcel.acknowledged = len(bodies) // 2
        rest = parcel.rest()
        assert opened(rest.command, rest.count, True) == bodies[len(bodies) // 2:]
