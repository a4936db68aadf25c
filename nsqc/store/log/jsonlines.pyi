def lines(data: int, offset: int, start: int, end: int, most: int) -> tuple[bytes, int, int]:
    """Records as lines of JSON: about `most` bytes of them, one at least; then offset and position behind the last.

    start, end: positions between which sound() has found nothing but intact records. Raises OSError if they are no
    longer there.
    """
