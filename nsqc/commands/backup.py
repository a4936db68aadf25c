"""`nsqc backup`: copies a data path, also while its daemon runs. `nsqc restore` is its reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.commands.output import EXIT_USAGE, fail, print_text
from nsqc.paths import folder_fault, local

if TYPE_CHECKING:
    from nsqc.store.copying import Copied

Folder = Annotated[str, typer.Argument(metavar="DIR", help="the folder of the backup")]
DataPath = Annotated[str, typer.Option("--data-path", metavar="PATH", help="the daemon's data path")]


def command(folder: Folder, data_path: DataPath) -> int:
    """Copy a data path to a new folder, on the same machine, also while its daemon runs and is used.

    The copy has every message that was on the disk, acknowledged, when it began, and is like a folder after a kill:
    messages may be delivered again. Messages that the daemon has only in memory are not in it; topics in a log have
    none. File systems that can share blocks copy nothing. Run it as the daemon's user, or as root.

    Example: `nsqc backup /backup/monday --data-path /var/lib/nsqd`.
    """
    from nsqc.store.copying import back_up

    return copied("backup", data_path, folder, back_up)


def copied(name: str, source: str, to: str, call: Callable[[str, str], Copied]) -> int:
    """Runs either command; returns its exit code."""
    from nsqc.store.copying import CopyError

    try:
        source, to = local(source), local(to)
        if fault := folder_fault(source):
            return fail(name, fault, EXIT_USAGE)
        found = call(source, to)
    except ValueError as error:
        return fail(name, str(error), EXIT_USAGE)
    except (CopyError, OSError) as error:
        return fail(name, str(error))
    print_text(f"{to}: {found.files} files, {found.bytes} bytes")
    return 0
