from typing import Final

SOUND: Final[int]
BAD_ENTRY: Final[int]
BAD_RECORD: Final[int]
BLANK: Final[int]

def scan_segment(dat: str, idx: str, first: int, end: int) -> tuple[list[tuple[int, int, int]], int]: ...
def find_records(dat: str, begin: int, end: int) -> list[tuple[int, int, int, int]]: ...
