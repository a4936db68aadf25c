"""Lists the queue files of a data path: of one queue, of all, and an index for daemon startup."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from nsqc.store.disk.names import META, is_leftover, path_of, split_name

ODD = -1  # instead of a size: not a file but a folder, a device, or a dangling link


class Index:
    """All queue files at daemon startup, from one listing for all queues.

    No other process writes to the data path while it is locked. So a name that the index lacks, or no longer has, has
    no files: creating a topic later needs no listing, regardless of the number of topics.

    Removes leftovers of an earlier run.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self.queues: dict[str, dict[int, int]] = {}  # TOPIC or TOPIC:CHANNEL, not opened yet; files as queue_files()
        self.temporaries: list[str] = []  # other files whose writing was interrupted
        with os.scandir(folder) as entries:
            for entry in entries:
                self._add(entry)

    def _add(self, entry: os.DirEntry[str]) -> None:
        name = entry.name
        parts = split_name(name)
        if parts is not None:
            self.queues.setdefault(parts[0], {})[parts[1]] = size_of(entry)
        elif is_leftover(name):
            with suppress(OSError):
                os.unlink(entry.path)
        elif name.endswith(".tmp"):
            self.temporaries.append(name)

    def take(self, queue: str) -> dict[int, int]:
        """Hands over the files of a queue being opened, which keeps track of them from now on."""
        return self.queues.pop(queue, {})

    def loaded(self) -> None:
        """All queues of earlier runs are open. A folder with the name of a new queue's first file is left alone: as
        in nsqd, writing fails until it is removed."""
        for name, files in list(self.queues.items()):
            if all(size == ODD and os.path.isdir(path_of(self.folder, name, number)) for number, size in files.items()):
                del self.queues[name]

    def names(self, with_messages: bool) -> list[str]:
        """Names of queues with files, sorted; with_messages: only those with a non-empty data file."""
        return sorted(name for name, files in self.queues.items()
                      if not with_messages or any(size > 0 for number, size in files.items() if number != META))


def size_of(entry: os.DirEntry[str]) -> int:
    """The size of a file, or of a link's target; ODD for anything else."""
    try:
        status = entry.stat()
    except OSError:
        return ODD
    return status.st_size if stat.S_ISREG(status.st_mode) else ODD


def queue_files(folder: str, name: str) -> dict[int, int]:
    """Everything named like a file of this queue: number or META to size or ODD. Raises OSError."""
    files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(name):
                parts = split_name(entry.name)
                if parts is not None and parts[0] == name:
                    files[parts[1]] = size_of(entry)
    return files


def listing(folder: str) -> dict[str, dict[int, int]]:
    """All queues with data files: their numbers in order, with sizes. Counts only regular files. Raises OSError."""
    queues: dict[str, dict[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = split_name(entry.name)
            if parts is not None and parts[1] != META and (size := size_of(entry)) != ODD:
                queues.setdefault(parts[0], {})[parts[1]] = size
    return {name: dict(sorted(files.items())) for name, files in queues.items()}
