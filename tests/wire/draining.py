"""What a codec has decoded."""

from nsqc.wire.codecs import Codec


def drain(codec: Codec) -> bytes:
    """All of it, in pieces that have a bound."""
    found = b""
    while piece := codec.get():
        assert len(piece) <= 65536
        found += piece
    return found
