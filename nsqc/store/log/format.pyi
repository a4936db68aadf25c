INDEX_HEAD: int
INDEX_ENTRY: int
DUE_ENTRY: int
TIME_UNIT: int
LARGEST_SEGMENT: int

def checksum(data: bytes | bytearray | memoryview) -> int: ...
