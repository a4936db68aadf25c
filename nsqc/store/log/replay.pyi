# number, name ("": lost), cursor, unfinished ranges, finished ranges ahead, waiting (offset, attempts, due)
_Channel = tuple[int, str, int, list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int, int]]]

def replay(folder: str) -> tuple[
    list[_Channel],
    int | None,  # the topic's cursor
    list[tuple[str, int, bool]],  # files: kind, number, whether it is damaged
    list[tuple[str, int, bool]],  # likewise, of files that are not of this log
    tuple[int, int, int, int],  # damaged operations and frames, their bytes, missing journals, bytes of a torn frame
]: ...
