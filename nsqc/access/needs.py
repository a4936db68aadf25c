"""What a call requires of its client, declared next to each route and command."""

from __future__ import annotations

from typing import NamedTuple

PUBLISH, CONSUME, READ, STATS, ADMIN = GRANTS = ("publish", "consume", "read", "stats", "admin")
# What a call is about: the program as a whole, the `topic` of its query, that and its `channel`, some part of the
# topic (a channel of it suffices), or nothing that a grant could cover.
NODE, TOPIC, CHANNEL, PART, NOTHING = "node", "topic", "channel", "part", "nothing"


class Need(NamedTuple):
    """The requirements of one call."""

    grants: tuple[str, ...] = ()    # any one of them suffices; empty: everybody may call it
    of: str = NODE                  # what the grant has to cover
    own: bool = False               # the NSQ program does not have this call
    local: bool = False             # without access rules only clients of this machine may call it; see is_local

    @property
    def changes(self) -> bool:
        """Whether it is an operator's call that changes something."""
        return self.grants in _CHANGING


_CHANGING = ((ADMIN,), (ADMIN, PUBLISH))
OPEN = Need()                                   # reveals and changes nothing
OPEN_OWN = Need(own=True)
KNOWN = Need(GRANTS, NOTHING)                   # any grant at all


def need(grant: str, of: str = NODE) -> Need:
    """A call that the NSQ program has, too."""
    return Need((grant,), of)


def own(grant: str, of: str = NODE) -> Need:
    """A call of nsqc's own that shows no more than those of NSQ."""
    return Need((grant,), of, own=True)


def local(grant: str, of: str = NODE) -> Need:
    """A call of nsqc's own that shows messages or controls the node."""
    return Need((grant,), of, own=True, local=True)
