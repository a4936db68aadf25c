"""Why publishes are refused, in one word each. A batch counts once."""

from __future__ import annotations

import errno

NO_MEMORY, EXITING, DRAINING, NO_SPACE, LOG_FULL = "no_memory", "exiting", "draining", "no_space", "log_full"
WRITE_FAILED, INVALID, UNAUTHORIZED, FAILED = "write_failed", "invalid", "unauthorized", "failed"
REASONS = {
    NO_MEMORY: "the process has no memory for it",
    EXITING: "the topic is being deleted, or the daemon stops",
    DRAINING: "the daemon drains",
    NO_SPACE: "less is free on the disk than `--min-free-disk`",
    LOG_FULL: "the topic's log is at its limit",
    WRITE_FAILED: "it could not be written or synced",
    INVALID: "the name, the size or the body is not valid",
    UNAUTHORIZED: "an auth server does not permit it",
    FAILED: "anything else, such as a topic that cannot be created",
}


def of_error(failure: int) -> str:
    """The reason for an errno of a publish."""
    return {errno.ENOMEM: NO_MEMORY, errno.ESHUTDOWN: EXITING}.get(failure, WRITE_FAILED)
