# number, name ("": lost), cursor, unfinished ranges, finished ranges ahead, waiting (offset, attempts, due)
_Channel = tuple[int, str, int, list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int, int]]]

def read_journal(folder: str) -> tuple[
    list[_Channel],
    int | None,  # the topic's cursor
    list[tuple[str, bool]],  # names of files, and whether they are damaged
    int,  # places of damage
    int,  # bytes of incomplete frames at the end
]: ...
