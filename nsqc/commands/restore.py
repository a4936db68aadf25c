"""`nsqc restore`: copies a backup to a new data path."""

from __future__ import annotations

from nsqc.commands.backup import DataPath, Folder, copied


def command(folder: Folder, data_path: DataPath) -> int:
    """Copy a backup of `nsqc backup` to a new or empty data path, for a daemon to start on.

    It refuses a backup that is incomplete. Check the messages themselves with `nsqc log verify` and
    `nsqc diskqueue verify`. Example: `nsqc restore /backup/monday --data-path /var/lib/nsqd`.
    """
    from nsqc.store.copying import restore

    return copied("restore", folder, data_path, restore)
