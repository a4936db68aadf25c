"""File names of a disk queue. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdio cimport snprintf

import itertools
import os
import re

META = -1           # instead of a file number: the positions file

cdef enum:
    MIN_DIGITS = 6
    MAX_DIGITS = 17

cdef str INFIX = ".diskqueue."
cdef str ENDING = ".dat"
cdef str META_WORD = "meta"
cdef object LEFTOVER = re.compile(r"\.diskqueue\.(?:(?:meta|\d{6,})\.dat\.retired-\d+-\d+|meta\.dat\.[\d-]+\.tmp)$")

cdef object temporaries = itertools.count()


cdef void path_store(char *c_path, const char *c_prefix, int64_t number) noexcept nogil:
    snprintf(c_path, PATH_BYTES, "%s%06lld.dat", c_prefix, <long long> number)


def prefix_of(str folder not None, str queue not None) -> str:
    """Common prefix of the paths of a queue's files."""
    return f"{folder}/{queue}{INFIX}"


def file_name(str queue not None, int64_t number) -> str:
    """The name of a data file, or of the positions file for META."""
    cdef char c_path[PATH_BYTES]
    if number == META:
        return f"{queue}{INFIX}{META_WORD}{ENDING}"
    path_store(c_path, b"", number)
    return f"{queue}{INFIX}{c_path.decode()}"


def path_of(str folder not None, str queue not None, int64_t number) -> str:
    """The path of a data file, or of the positions file for META."""
    return f"{folder}/{file_name(queue, number)}"


def split_name(str entry not None):
    """(queue, number or META) of a file name; None if it is not a queue's file."""
    if not entry.endswith(ENDING):
        return None
    queue, _, word = entry[:-len(ENDING)].rpartition(INFIX)
    if not queue:
        return None
    if word == META_WORD:
        return queue, META
    if not (word.isascii() and word.isdecimal() and MIN_DIGITS <= len(word) <= MAX_DIGITS):
        return None
    if len(word) > MIN_DIGITS and word[0] == "0":
        return None
    return queue, int(word)


def split_queue(str queue not None):
    """(topic, channel, or None for a topic's own queue) from a queue name."""
    topic, colon, channel = queue.partition(":")
    return topic, channel if colon else None


def temporary_of(str meta_path not None) -> str:
    """A path for new positions before they replace the positions file; unique per call."""
    return f"{meta_path}.{os.getpid()}-{next(temporaries)}.tmp"


def is_leftover(str entry not None) -> bool:
    """Whether an earlier run was about to remove a file of this name, or to rename it over another."""
    return LEFTOVER.search(entry) is not None
