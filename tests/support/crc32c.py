"""CRC-32C by the book."""

TABLE = list(range(256))
for _ in range(8):
    TABLE = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in TABLE]


def crc32c(data: bytes) -> int:
    """The checksum of all data."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
