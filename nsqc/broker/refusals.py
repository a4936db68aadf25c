"""One-word reasons for refused publishes. A batch counts once."""

from __future__ import annotations

import errno
import os

NO_MEMORY, EXITING, DRAINING, NO_SPACE, LOG_FULL = "no_memory", "exiting", "draining", "no_space", "log_full"
FULL = "full"
WRITE_FAILED, INVALID, UNAUTHORIZED, FAILED = "write_failed", "invalid", "unauthorized", "failed"
LIMIT, QUOTA = "limit", "quota"
REASONS = {
    NO_MEMORY: "the process is out of memory",
    EXITING: "the topic is being deleted, or the daemon stops",
    DRAINING: "the daemon is draining",
    NO_SPACE: "free disk space is below `--min-free-disk`",
    LOG_FULL: "the topic's log is at its limit",
    FULL: "the topic, or one of its channels, has reached its `max_depth` or `max_bytes`",
    WRITE_FAILED: "writing or syncing failed",
    INVALID: "the name, the size or the body is not valid",
    UNAUTHORIZED: "an auth server, or the access file, does not permit it",
    LIMIT: "the topic does not exist, and `--max-topics` is reached",
    QUOTA: "the user exceeds a quota of the access file",
    FAILED: "anything else, such as a topic that cannot be created",
}


NOT_SHIPPED = 1 << 19   # beside an errno: the bucket has not confirmed a publish in time
not_shipped = "the bucket has not confirmed it yet"     # the current reason
fenced = ""             # why another process owns this node in the bucket: it drains until it ends; empty: none does


MAX_TOPICS, MAX_CHANNELS = LIMITS = ("--max-topics", "--max-channels-per-topic")


class LimitReached(Exception):
    """The limit on topics or channels that clients may create is reached. The text is for the client."""

    def __init__(self, option: str, limit: int):
        what = "topic" if option == MAX_TOPICS else "channel"
        super().__init__(f"{what} limit of {limit} reached: delete a {what} or raise {option}")


class QuotaReached(LimitReached):
    """A user may not create a topic: its quota is used up."""

    def __init__(self, text: str):
        Exception.__init__(self, text)


def of_exception(error: BaseException) -> str:
    """The reason for an exception of a publish."""
    if isinstance(error, QuotaReached):
        return QUOTA
    return LIMIT if isinstance(error, LimitReached) else FAILED


def draining_text() -> str:
    """Why a draining node accepts nothing, for clients."""
    return fenced or "draining"


def text_of(failure: int) -> str:
    """The reason for an errno of a publish, for its client."""
    return not_shipped if failure == NOT_SHIPPED else os.strerror(failure)


def of_error(failure: int) -> str:
    """The reason for an errno of a publish."""
    return {errno.ENOMEM: NO_MEMORY, errno.ESHUTDOWN: EXITING}.get(failure, WRITE_FAILED)
