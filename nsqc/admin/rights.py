"""The rights of users: everything, or the grants of the access file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nsqc.access.needs import CHANNEL, NODE, STATS, TOPIC, Need
from nsqc.admin.attention import Concern, Concerns
from nsqc.admin.model import Moment, NodeRow
from nsqc.admin.pace import Pace
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request

if TYPE_CHECKING:
    from nsqc.access.keeper import Subject

MOST_VIEWS = 8      # users with different grants whose view of a moment is kept


class Rights:
    """The rights of one user. A grant covers the same topics as in the daemon's own calls."""

    def __init__(self, subject: Subject | None) -> None:
        """subject: None: there is no access file."""
        self._subject = subject
        self.sees_all = subject is None or bool(subject.reason(Need((STATS,), NODE)))

    def may(self, grant: str, topic: str = "", channel: str = "") -> bool:
        """Whether a grant covers a topic or a channel; without either, the fleet as a whole."""
        if self._subject is None:
            return True
        return bool(self._subject.reason(Need((grant,), scope_of(topic, channel)), topic, channel))

    def has(self, *grants: str) -> bool:
        """Whether one of these grants covers anything."""
        return self._subject is None or any(user.scopes.get(grant) for user in self._subject.users for grant in grants)

    def require(self, grant: str, topic: str = "", channel: str = "") -> None:
        """Raises ApiError if the grant does not cover it, whether it exists or not."""
        if not self.may(grant, topic, channel):
            what = f"{topic}/{channel}" if channel else f"topic {topic}" if topic else "the whole fleet ('*')"
            name = "" if self._subject is None else self._subject.name
            raise ApiError(403, f"FORBIDDEN - user {name} has no grant {grant} for {what}")

    @property
    def key(self) -> tuple[str, ...]:
        """A key for the visible topics: equal for users who see the same ones."""
        users = () if self._subject is None else self._subject.users
        return tuple(sorted({scope.text for user in users for scope in user.scopes.get(STATS, ())}))


def scope_of(topic: str, channel: str) -> str:
    """The object of a call, see nsqc.access.needs."""
    return CHANNEL if channel else TOPIC if topic else NODE


def rights_of(request: Request) -> Rights:
    """The rights of the client of a request that was admitted."""
    return Rights(request.subject)


class Views:
    """A moment as users with some grants see it: with their topics only."""

    def __init__(self) -> None:
        self._moment: Moment | None = None
        self._views: dict[tuple[str, ...], Moment] = {}

    async def of(self, moment: Moment, rights: Rights) -> Moment:
        """The moment as a user sees it."""
        if rights.sees_all:
            return moment
        if moment is not self._moment:
            self._moment, self._views = moment, {}
        known = self._views.get(rights.key)
        if known is not None:
            return known
        view = await narrowed(moment, rights)
        if moment is self._moment:
            if len(self._views) >= MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[rights.key] = view
        return view


async def narrowed(moment: Moment, rights: Rights) -> Moment:
    """The topics that a user sees, and their sums; of nodes, the fields of /info."""
    pace = Pace()
    view = Moment()
    view.at = moment.at
    for name, row in moment.topics.items():
        if rights.may(STATS, name):
            view.topics[name] = row
        if pace.over():
            await pace.rest()
    for address, node in moment.nodes.items():
        view.nodes[address] = NodeRow(
            address, node.tcp, node.hostname, node.version, node.nsqc, node.listed, node.error, node.missing_since,
            start_time=node.start_time, topics=-1, channels=-1, clients=-1, depth=-1, in_flight=-1, messages=-1)
    view.feeders = {name: seen for name, rows in moment.feeders.items()
                    if (seen := [row for row in rows if row.topic in view.topics])}
    view.sum_up()
    return view


def concerns_for(concerns: Concerns, rights: Rights) -> Concerns:
    """Those about topics that a user sees."""
    if rights.sees_all:
        return concerns
    listed: list[Concern] = [each for each in concerns.listed if each.topic and rights.may(STATS, each.topic)]
    counts = dict.fromkeys(concerns.counts, 0)
    for each in listed:
        counts[each.severity] += 1
    return Concerns(listed, counts)


async def meter(request: Request, size: int) -> None:
    """Counts a publish towards the user's quota, and waits until its rate allows it. size: of the body, bytes. Raises
    ApiError."""
    account = None if request.subject is None else request.subject.account
    if account is None or not account.is_metered:
        return
    wait, reason = account.publish(1, size)
    if reason:
        raise ApiError(429, f"QUOTA - {reason}")
    await asyncio.sleep(wait)
