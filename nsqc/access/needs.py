"""Permissions that a call requires, declared next to each route and command."""

from __future__ import annotations

from typing import NamedTuple

PUBLISH, CONSUME, READ, STATS, ADMIN = GRANTS = ("publish", "consume", "read", "stats", "admin")
# The scope of a call: the program as a whole, the `topic` of its query, that and its `channel`, any part of the topic
# (one of its channels suffices), or nothing that a grant could cover.
NODE, TOPIC, CHANNEL, PART, NOTHING = "node", "topic", "channel", "part", "nothing"


class Need(NamedTuple):
    """The requirements of one call."""

    grants: tuple[str, ...] = ()    # any one of them suffices; empty: open to everybody
    of: str = NODE                  # the scope that the grant must cover
    own: bool = False               # the NSQ program lacks this call
    local: bool = False             # without access rules restricted to clients on this machine; see is_local

    @property
    def changes(self) -> bool:
        """Whether it is an operator's call that changes something."""
        return self.grants in _CHANGING


_CHANGING = ((ADMIN,), (ADMIN, PUBLISH))
OPEN = Need()                                   # reveals and changes nothing
OPEN_OWN = Need(own=True)
KNOWN = Need(GRANTS, NOTHING)                   # any grant
PUBLISHING, CONSUMING = Need((PUBLISH,), TOPIC), Need((CONSUME,), CHANNEL)


def need(grant: str, of: str = NODE) -> Need:
    """A call that the NSQ program has too."""
    return Need((grant,), of)


def own(grant: str, of: str = NODE) -> Need:
    """A call of nsqc's own that reveals no more than NSQ's calls do."""
    return Need((grant,), of, own=True)


def local(grant: str, of: str = NODE) -> Need:
    """A call of nsqc's own that shows messages or controls the node."""
    return Need((grant,), of, own=True, local=True)
