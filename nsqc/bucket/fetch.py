"""History that is not on this disk: extents fetched from the bucket into a folder of bounded size.

A fetched extent is a sparse file with its frames at their positions in the segment, so the readers of local segments
read it unchanged, from the extent's position on. Nothing in the folder outlives the process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from nsqc.bucket.commit import Frames
from nsqc.bucket.reading import read_frames
from nsqc.bucket.store import Bucket

SUFFIX = ".frames"
FETCHES = 2                     # at once: one that is waited for, and one ahead
Key = tuple[int, int, int]      # of an extent, wherever its bytes are: salt, position, length


class Cache:
    """Thread-safe; its calls block, so they belong on a thread."""

    def __init__(self, node: Bucket, folder: str, most_bytes: int) -> None:
        """most_bytes: of all extents together, but at least the one that is read. Raises OSError."""
        self.node = node
        self.folder = folder
        self.most_bytes = most_bytes
        self.lock = threading.Lock()
        self.files: OrderedDict[Key, Future[str]] = OrderedDict()       # oldest use first
        self.threads = ThreadPoolExecutor(FETCHES, thread_name_prefix="bucket-fetch")
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            if name.endswith(SUFFIX):
                os.unlink(os.path.join(folder, name))

    def open(self, part: Frames, following: Frames | None = None) -> int:
        """A descriptor, to be closed by the caller, of a file with these frames. Raises BucketError or OSError.

        following: the extent that is likely read next; it is fetched meanwhile.
        """
        while True:
            future = self.request(part)
            if following is not None:
                self.request(following)
            try:
                descriptor = os.open(future.result(), os.O_RDONLY | os.O_CLOEXEC)
                self.shrink(key_of(part))
                return descriptor
            except Exception as error:
                with self.lock:
                    if self.files.get(key_of(part)) is future:
                        del self.files[key_of(part)]
                if not isinstance(error, FileNotFoundError):    # others' reads removed it meanwhile
                    raise

    def request(self, part: Frames) -> Future[str]:
        key = key_of(part)
        with self.lock:
            if key not in self.files:
                self.files[key] = self.threads.submit(self.fetch, part)
            self.files.move_to_end(key)
            return self.files[key]

    def fetch(self, part: Frames) -> str:
        path = os.path.join(self.folder, "-".join(map(str, key_of(part))) + SUFFIX)
        data = read_frames(self.node, part)
        with open(path, "wb") as file:
            file.seek(part.position)
            file.write(data)
        return path

    def shrink(self, kept: Key) -> None:
        """Removes the extents that were not used for the longest time."""
        with self.lock:
            size = sum(length for _, _, length in self.files)
            for key, future in [*self.files.items()]:
                if size <= self.most_bytes:
                    return
                if key == kept or not future.done():
                    continue
                del self.files[key]
                size -= key[2]
                if future.exception() is None:
                    os.unlink(future.result())

    def close(self) -> None:
        self.threads.shutdown()
        with self.lock:
            for future in self.files.values():
                if future.exception() is None:
                    os.unlink(future.result())
            self.files.clear()


def key_of(part: Frames) -> Key:
    return part.salt, part.position, part.length
