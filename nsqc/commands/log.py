"""`nsqc log`: inspects log topics, checks their files, converts them to nsqd's. Needs no daemon."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, fail, print_text
from nsqc.paths import folder_fault, local

command = typer.Typer(help="Inspect log topics, check them, export them to nsqd.")

Paths = Annotated[list[str], typer.Argument(help="data paths, or TOPIC.log folders in one", metavar="PATH...")]


class UsageError(Exception):
    """A path is not what the command needs."""


def text_of(error: Exception) -> str:
    """An error's text, without the errno that errors of unusable logs lack."""
    from nsqc.store.log.recovery import LogError

    return f"{error.filename}: {error.strerror}" if isinstance(error, LogError) else str(error)


def folders_of(paths: list[str]) -> list[str]:
    """The folders of the log topics that paths name. Raises UsageError or OSError."""
    from nsqc.store.log.names import folders_in, topic_of

    folders: dict[str, None] = {}
    for path in paths:
        if fault := folder_fault(path):
            raise UsageError(fault)
        found = [os.path.abspath(path)] if topic_of(path) else list(folders_in(path).values())
        if not found:
            raise UsageError(f"{path} has no log topics")
        folders.update(dict.fromkeys(found))
    return list(folders)


def warn_if_running(name: str, folders: list[str]) -> None:
    """For commands that only read."""
    from nsqc.process.lifecycle import LockError, locked

    for path in sorted({os.path.dirname(folder) for folder in folders}):
        try:
            with locked({path}):
                pass
        except LockError:
            print(f"nsqc log {name}: warning: a daemon is running on {path}: its files change while they are read",
                  file=sys.stderr)


@command.command("inspect")
def inspect_command(
    paths: Paths,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, one array with all topics")] = False,
) -> int:
    """Print the contents of log topics, and their channels' progress.

    Examples: `nsqc log inspect /var/lib/nsqd`, `nsqc log inspect --json /var/lib/nsqd/orders.log`. It can run beside
    a daemon; the numbers are then those on disk.
    """
    from nsqc.store.log.check import as_text, read_log, summary

    try:
        folders = folders_of(paths)
        warn_if_running("inspect", folders)
        topics = [summary(read_log(folder)) for folder in folders]
    except UsageError as error:
        return fail("log inspect", str(error), EXIT_USAGE)
    except OSError as error:
        return fail("log inspect", text_of(error))
    print_text(json.dumps(topics, indent=2) if as_json else "\n\n".join(map(as_text, topics)))
    return 0


@command.command("verify")
def verify_command(paths: Paths) -> int:
    """Check every message and journal frame of log topics, and look for missing files.

    Prints faults; the exit code is 1 if there are any. A torn write at the end of a file, as a kill leaves it, is not a
    fault: a start handles it. Nothing needs repair: a daemon finds the same faults, and delivers all intact messages.
    Example: `nsqc log verify /var/lib/nsqd`.
    """
    from nsqc.store.log.check import check_folder

    faults = 0
    try:
        folders = folders_of(paths)
        warn_if_running("verify", folders)
        for folder in folders:
            verdict = check_folder(folder)
            for finding in verdict.findings:
                print_text(f"{finding.path}: {'' if finding.is_fault else 'note: '}{finding.text}")
            found = sum(finding.is_fault for finding in verdict.findings)
            faults += found
            state = "ok" if not found else f"{found} fault{'' if found == 1 else 's'}"
            print_text(f"{folder}: {state}, {verdict.records} intact messages")
    except UsageError as error:
        return fail("log verify", str(error), EXIT_USAGE)
    except OSError as error:
        return fail("log verify", str(error))
    return EXIT_REFUSED if faults else 0


@command.command("export")
def export_command(
    paths: Paths,
    to: Annotated[str, typer.Option("--to", help="the target format: nsqd")],
    out: Annotated[str, typer.Option("--out", help="the folder to write to; default: the data path",
                                     metavar="FOLDER")] = "",
) -> int:
    """Convert log topics to nsqd's own files.

    nsqd then delivers exactly the unfinished messages. Each channel gets a copy of its messages. Without --out the
    topics' folders are renamed to TOPIC.log.exported. Running it again finishes or restarts an interrupted export. No
    daemon may be running.

    Examples: `nsqc log export --to nsqd /var/lib/nsqd`, `nsqc log export --to nsqd --out /srv/nsqd /var/lib/nsqd`.
    """
    from nsqc.log import Log
    from nsqc.process.lifecycle import LockError, locked
    from nsqc.store.files import MetadataError
    from nsqc.store.log.export import Export, ExportError

    if to != "nsqd":
        return fail("log export", f"cannot export to {to!r}; the only format is nsqd", EXIT_USAGE)
    try:
        out = local(out)
    except ValueError as error:
        return fail("log export", f"--out: {error}", EXIT_USAGE)
    log = Log("nsqc log export: ")
    try:
        folders = folders_of(paths)
        if out:
            os.makedirs(out, exist_ok=True)
        data_paths = {os.path.realpath(os.path.dirname(folder)) for folder in folders}
        with locked(data_paths | ({os.path.realpath(out)} if out else set())):
            for folder in folders:
                Export(folder, out or os.path.dirname(folder), print_text, log).run()
    except UsageError as error:
        return fail("log export", str(error), EXIT_USAGE)
    except (OSError, LockError, ExportError, MetadataError) as error:
        return fail("log export", text_of(error))
    finally:
        log.close()
    return 0
