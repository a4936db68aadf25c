class CodecError(ValueError):
    """The peer's stream cannot be decoded; the text is for the peer."""

class Codec:
    """Base of the codecs."""

    @property
    def name(self) -> str:
        """deflate or snappy."""

    @property
    def ended(self) -> bool:
        """The stream itself says that it is over."""

    @property
    def waiting(self) -> int:
        """Bytes of input that are not decoded yet."""

    @property
    def truncated(self) -> bool:
        """Whether the input so far breaks off in the middle."""

    def put(self, data: bytes) -> None:
        """Feeds input."""

    def get(self) -> bytes:
        """The next plain bytes, at most 64 KiB; empty where more input is needed. Raises CodecError."""

    def pack(self, data: bytes) -> bytes:
        """The bytes encoded and flushed."""
