"""What lies in a data path when the daemon starts: one listing for all its queues.

Nobody else writes there while the lock is held, so a name that the index does not have, or that has been taken out of
it, has no files: a topic that is made while the daemon runs costs no listing, however many others there are.
"""

from __future__ import annotations

import os
from contextlib import suppress

from nsqc.store.disk.diskmeta import LEFTOVER, META, ODD, path_of, size_of, split_name


class Index:
    """Queue files by queue, as diskmeta.queue_files() has them; leftovers of an earlier run are removed."""

    def __init__(self, folder: str):
        self.folder = folder
        self.queues: dict[str, dict[int, int]] = {}  # TOPIC or TOPIC:CHANNEL, of those that were not opened yet
        self.temporaries: list[str] = []  # names of other files that were not finished
        with os.scandir(folder) as entries:
            for entry in entries:
                self._add(entry)

    def _add(self, entry: os.DirEntry[str]) -> None:
        name = entry.name
        parts = split_name(name)
        if parts is not None:
            self.queues.setdefault(parts[0], {})[parts[1]] = size_of(entry)
        elif LEFTOVER.search(name):
            with suppress(OSError):
                os.unlink(entry.path)
        elif name.endswith(".tmp"):
            self.temporaries.append(name)

    def take(self, queue: str) -> dict[int, int]:
        """The files of a queue that is being opened; from now on it knows them itself."""
        return self.queues.pop(queue, {})

    def loaded(self) -> None:
        """All queues that there were are open. Folders that stand alone where a new queue's file would be are left to
        whoever made them: as with nsqd, writing fails until they are gone."""
        for name, files in list(self.queues.items()):
            if all(size == ODD and os.path.isdir(path_of(self.folder, name, number)) for number, size in files.items()):
                del self.queues[name]

    def names(self, with_messages: bool) -> list[str]:
        """The queues that have files, sorted, or those of them that have something in their data files."""
        return sorted(name for name, files in self.queues.items()
                      if not with_messages or any(size > 0 for number, size in files.items() if number != META))
