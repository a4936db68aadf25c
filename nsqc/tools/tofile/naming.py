"""File names, from a format with <TOPIC>, <HOST>, <PID>, <REV> and <DATETIME>."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import NamedTuple

REV = "<REV>"
# Placeholders; everything else is kept verbatim.
DIRECTIVE = re.compile(r"%[BbmAadHIMSYypZz%]")


class Naming(NamedTuple):
    """format: of the path below a folder; datetime: strftime, local time; host: for <HOST>; suffix: .gz or .zst, or
    empty. numbered: the name has a <REV>, incremented if the name is taken."""

    format: str
    datetime: str
    host: str
    suffix: str
    numbered: bool

    def name(self, topic: str, now: float) -> str:
        """The name at a time (time.time()), with <REV> in it if it is numbered."""
        # A topic may be called .. and must not lead to another folder.
        topic = topic if topic.strip(".") else topic.replace(".", "_")
        name = self.format.replace("<TOPIC>", topic).replace("<HOST>", self.host).replace("<PID>", str(os.getpid()))
        name = name.replace("<DATETIME>", written(self.datetime, now))
        if not self.numbered:
            name = name.replace(REV, "")
        return name if not self.suffix or name.endswith(self.suffix) else name + self.suffix


def written(form: str, now: float) -> str:
    """strftime of the local time, with the directives known to nsq_to_file."""
    local = time.localtime(now)
    return DIRECTIVE.sub(lambda found: time.strftime(found[0], local), form)


def numbered_name(name: str, number: int) -> str:
    """The name with its <REV>."""
    return name.replace(REV, f"-{number:06d}")


def host_identifier(text: str) -> str:
    """The text for <HOST>: the short host name by default."""
    full = socket.gethostname()
    short = full.split(".")[0]
    return text.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", full) if text else short
