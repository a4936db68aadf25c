"""Frames, byte for byte as in the protocol."""

import struct

from tests.compiled.wire import error_frame, message_frames, response_frame


def test_response_and_error():
    assert response_frame(b"OK") == struct.pack(">ii", 6, 0) + b"OK"
    assert response_frame(b"") == struct.pack(">ii", 4, 0)
    assert error_frame(b"E_INVALID") == struct.pack(">ii", 13, 1) + b"E_INVALID"


def test_message():
    frame = message_frames(b"body", 1_700_000_000_000_000_000, 65535, b"0123456789abcdef")
    assert frame == struct.pack(">iiqH", 34, 2, 1_700_000_000_000_000_000, 65535) + b"0123456789abcdef" + b"body"


def test_many_messages_grow_the_buffer():
    one = message_frames(b"x" * 100, 1, 1, b"0" * 16)
    assert message_frames(b"x" * 100, 1, 1, b"0" * 16, 1000) == one * 1000
