"""The folder in which the one-file executable has unpacked itself. Its first process removes it, unless it is killed.

Each daemon locks a file in its folder for its lifetime. One of our folders with a free lock is a leftover.
"""

import fcntl
import os
import shutil
import stat
import sys

FOLDER = "_MEI"  # prefix of the name, given by PyInstaller
LOCK = "nsqc.lock"

_held: list[int] = []


def lock() -> None:
    """Marks this process's folder as in use, until the process ends."""
    path = os.path.join(sys._MEIPASS, LOCK)
    _held.append(os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    fcntl.flock(_held[-1], fcntl.LOCK_EX)
    # Renamed only once it is locked: another starting daemon may check it at any moment.
    os.rename(path + ".new", path)


def remove_leftovers() -> None:
    """Removes the folders of killed daemons, next to this process's. Folders that cannot be removed stay."""
    parent = os.path.dirname(sys._MEIPASS)
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        if name.startswith(FOLDER) and is_left(folder := os.path.join(parent, name)):
            shutil.rmtree(folder, ignore_errors=True)


def is_left(folder: str) -> bool:
    """Whether a folder belongs to this user and was locked by a process that has ended.

    A folder being unpacked has no lock yet. In a shared folder, links and other users' folders are not followed.
    """
    try:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_with(parent: int) -> None:
    """At the end of this process: removes its folder if the first process, which should do so, is gone."""
    if os.getppid() != parent:
        shutil.rmtree(sys._MEIPASS, ignore_errors=True)
