"""`nsqc diskqueue`: inspects nsqd's disk queues, checks and repairs their files. Needs no daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option
from nsqc.paths import folder_fault
from nsqc.tools import running
from nsqc.tools.declare import (
    CHANNEL_OPTION,
    EXIT_FAILED,
    JSON,
    TOPIC_OPTION,
    Argument,
    Group,
    NoName,
    Tool,
    ToolError,
    UsageError,
    Values,
)

if TYPE_CHECKING:
    from nsqc.store.disk.check import Queue

PLACE = "nsqc diskqueue"
DEFAULT_MAX_MSG_SIZE = 1 << 20      # nsqd's

PATHS = Argument("PATH", "a data path", Kind.FOLDER, many=True)
MAX_MSG_SIZE = Option("max-msg-size", "the daemon's --max-msg-size: larger messages count as damage", Kind.SIZE,
                      DEFAULT_MAX_MSG_SIZE, least=1, most=2**31 - 1 - 30)
DRY_RUN = Option("dry-run", "only print the steps", Kind.BOOL, False)


def queues_of(values: Values, tool: str) -> list[tuple[str, str]]:
    """(data path, queue) of all queues selected by the command line. Raises UsageError, NoName, OSError."""
    from nsqc.store.disk.check import queue_names
    from nsqc.store.disk.fileio import split_queue

    topic, channel = values.text("topic"), values.text("channel")
    if channel and not topic:
        raise UsageError("--channel needs --topic", tool)
    found, known = [], []
    for path in values.texts("PATH"):
        if fault := folder_fault(path):
            raise UsageError(fault, tool)
        folder = os.path.abspath(path)
        for name in queue_names(folder):
            known.append(name)
            its_topic, its_channel = split_queue(name)
            if (not topic or its_topic == topic) and (not channel or its_channel == channel):
                found.append((folder, name))
    if not found and topic:
        raise NoName("disk queue", f"{topic}:{channel}" if channel else topic, known)
    return found


def max_record(values: Values) -> int:
    """Size of the largest record, bytes."""
    from nsqc.store.disk.segment import RECORD_HEAD_BYTES

    return RECORD_HEAD_BYTES + values.number("max-msg-size")


@contextmanager
def without_daemon(folders: set[str]) -> Iterator[None]:
    """Locks data paths, as a daemon does. Raises ToolError."""
    from nsqc.process.lifecycle import LockError, locked

    try:
        with locked(folders):
            yield
    except LockError as error:
        raise ToolError(f"{error}; stop the daemon first") from None


def warn_if_running(folders: set[str]) -> None:
    """For commands that only read."""
    for folder in sorted(folders):
        try:
            with without_daemon({folder}):
                pass
        except ToolError:
            running.print_error(PLACE, f"warning: a daemon is running on {folder}: its files change while they are "
                                       "read, and its messages in memory are not included")


# ---------------------------------------------------------------------- inspect

def inspect(values: Values) -> int:
    """`nsqc diskqueue inspect`."""
    from nsqc.store.disk.check import look

    found = queues_of(values, f"{PLACE} inspect")
    warn_if_running({folder for folder, _ in found})
    queues = [look(folder, name, max_record(values)) for folder, name in found]
    if values.flag("json"):
        for queue in queues:
            running.as_json(as_dict(queue))
    elif queues:
        rows = [["QUEUE", "MESSAGES", "BYTES", "FILES", "READ AT", "WRITE AT", "DAMAGED"]]
        running.write(running.table(rows + [row(queue) for queue in queues], frozenset({1, 2, 3, 6})))
    else:
        running.line("no disk queues")
    return 0


def row(queue: Queue) -> list[str]:
    """A line of the table."""
    waiting = sum(max(file.end - file.start, 0) for file in queue.files)
    return [queue.name, str(queue.depth), str(waiting), str(len(queue.files)), place(queue.read),
            place(queue.write), str(sum(file.damaged for file in queue.files))]


def place(position: tuple[int, int]) -> str:
    """A file number and a position in the file."""
    return f"{position[0]:06}:{position[1]}"


def as_dict(queue: Queue) -> dict[str, object]:
    """For --json."""
    from nsqc.store.disk.fileio import split_queue

    topic, channel = split_queue(queue.name)
    return {
        "path": queue.folder, "topic": topic, "channel": channel, "messages": queue.depth,
        "positions": queue.meta._asdict() if queue.meta is not None else None, "positions_trusted": queue.trusted,
        "read": queue.read, "write": queue.write,
        "files": [{"number": file.number, "path": file.path, "bytes": file.size, "start": file.start,
                   "messages": file.records, "damaged_bytes": file.damaged} for file in queue.files],
        "consumed": queue.consumed, "missing": queue.missing, "bad": queue.bad}


# ---------------------------------------------------------------------- verify, repair

def verify(values: Values) -> int:
    """`nsqc diskqueue verify`."""
    from nsqc.store.disk.check import findings, look

    found = queues_of(values, f"{PLACE} verify")
    warn_if_running({folder for folder, _ in found})
    faults = 0
    for folder, name in found:
        queue = look(folder, name, max_record(values))
        all_of_it = findings(queue)
        bad = sum(finding.is_fault for finding in all_of_it)
        faults += bad
        if values.flag("json"):
            running.as_json({"path": folder, "queue": name, "messages": queue.depth, "faults": bad,
                            "findings": [finding._asdict() for finding in all_of_it]})
            continue
        for finding in all_of_it:
            running.line(f"{finding.path}: {'' if finding.is_fault else 'note: '}{finding.text}")
        state = "ok" if not bad else plural(bad, "fault")
        running.line(f"{folder}/{name}: {state}, {plural(queue.depth, 'message')} waiting")
    return EXIT_FAILED if faults else 0


def repair(values: Values) -> int:
    """`nsqc diskqueue repair`."""
    from nsqc.store.disk.check import Repair, TooLarge

    found = queues_of(values, f"{PLACE} repair")
    dry_run = values.flag("dry-run")

    with without_daemon({folder for folder, _ in found}):
        for folder, name in found:
            try:
                steps = Repair(folder, name, max_record(values), running.line, dry_run).run()
            except TooLarge as error:
                raise ToolError(str(error)) from None
            done = plural(steps, "step") if steps else "nothing to repair"
            running.line(f"{folder}/{name}: {done}{', not taken' if steps and dry_run else ''}")
    return 0


def plural(number: int, word: str) -> str:
    """1 step, 2 steps."""
    return f"{number} {word}{'' if number == 1 else 's'}"


TOOL = Group(("diskqueue",), "Inspect nsqd's disk queues, check and repair their files.", (
    Tool(("diskqueue", "inspect"), "Print the contents of disk queues.", inspect,
         options=(TOPIC_OPTION, CHANNEL_OPTION, MAX_MSG_SIZE, JSON), arguments=(PATHS,),
         text="""Messages and bytes are the unread ones, counted in the files. It can run beside a daemon; the numbers
              are then those on disk.""",
         examples=(("nsqc diskqueue inspect /var/lib/nsqd", "all queues of a data path"),
                   ("nsqc diskqueue inspect --topic orders --json /var/lib/nsqd",
                    "a topic and its channels, for a script"))),
    Tool(("diskqueue", "verify"), "Check every record and position of disk queues.", verify,
         options=(TOPIC_OPTION, CHANNEL_OPTION, MAX_MSG_SIZE, JSON), arguments=(PATHS,),
         text="""Prints faults; the exit code is 1 if there are any. A torn write at the end of a file, as a kill leaves
              it, is not a fault but a note: a start handles it.""",
         examples=(("nsqc diskqueue verify /var/lib/nsqd", "all queues of a data path"),)),
    Tool(("diskqueue", "repair"), "Repair damaged disk queues.", repair,
         options=(TOPIC_OPTION, CHANNEL_OPTION, MAX_MSG_SIZE, DRY_RUN), arguments=(PATHS,),
         text="""Rewrites damaged files with all intact messages, closes gaps between files, and rebuilds positions from
              the files, so that nsqd delivers everything that survived; nsqd alone drops the rest of a damaged file.
              Replaced files are kept as NAME.bad. No daemon may be running. An interrupted repair is completed by
              running it again.""",
         examples=(("nsqc diskqueue repair --dry-run /var/lib/nsqd", "show the steps"),
                   ("nsqc diskqueue repair /var/lib/nsqd", "take them")))))
