"""What queue files a data path has: those of one queue, those of all, and the index of a daemon that starts."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from nsqc.store.disk.names import META, is_leftover, path_of, split_name

ODD = -1  # in place of a size: it is not a file but a folder, a device, a link that leads nowhere


class Index:
    """All queue files there are when the daemon starts, from one listing for all queues.

    Nobody else writes to the data path while it is locked. So a name that the index does not have, or no longer has,
    has no files: a topic that is created while the daemon runs needs no listing, however many others there are.

    Leftovers of an earlier run are removed.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self.queues: dict[str, dict[int, int]] = {}  # TOPIC or TOPIC:CHANNEL, not opened yet; files as queue_files()
        self.temporaries: list[str] = []  # names of other files whose writing was interrupted
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
        """The files of a queue that is being opened, and that keeps track of them from now on."""
        return self.queues.pop(queue, {})

    def loaded(self) -> None:
        """All queues of earlier runs are open now. A folder with the name of a new queue's only file is left alone: as
        with nsqd, writing fails until it is gone."""
        for name, files in list(self.queues.items()):
            if all(size == ODD and os.path.isdir(path_of(self.folder, name, number)) for number, size in files.items()):
                del self.queues[name]

    def names(self, with_messages: bool) -> list[str]:
        """The queues that have files, sorted; with_messages: only if a data file is not empty."""
        return sorted(name for name, files in self.queues.items()
                      if not with_messages or any(size > 0 for number, size in files.items() if number != META))


def size_of(entry: os.DirEntry[str]) -> int:
    """The size of a file, or of the file a link leads to; ODD for anything else."""
    try:
        status = entry.stat()
    except OSError:
        return ODD
    return status.st_size if stat.S_ISREG(status.st_mode) else ODD


def queue_files(folder: str, name: str) -> dict[int, int]:
    """Whatever has the name of a file of this queue: number or META to size or ODD. Raises OSError."""
    files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(name):
                parts = split_name(entry.name)
                if parts is not None and parts[0] == name:
                    files[parts[1]] = size_of(entry)
    return files


def listing(folder: str) -> dict[str, dict[int, int]]:
    """All queues that have data files: their numbers in order, with sizes. Only regular files count. Raises OSError."""
    queues: dict[str, dict[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = split_name(entry.name)
            if parts is not None and parts[1] != META and (size := size_of(entry)) != ODD:
                queues.setdefault(parts[0], {})[parts[1]] = size
    return {name: dict(sorted(files.items())) for name, files in queues.items()}
