"""CRC-32C (nsqc.wire.codecs) from Python."""

from nsqc.wire.codecs cimport crc32c, crc32c_by_tables


def checksum(const unsigned char[::1] data not None) -> int:
    """CRC-32C of bytes."""
    return crc32c(&data[0], data.shape[0]) if data.shape[0] else 0


def checksum_by_tables(const unsigned char[::1] data not None) -> int:
    """The same without the processor's instruction."""
    return crc32c_by_tables(&data[0], data.shape[0]) if data.shape[0] else 0
