"""Checks over HTTP, before a job starts, whether topics and channels exist."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from nsqc.spark.jobs import nsqd_http
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.running import JobError

MOST_NAMES = 8          # listed in an error


def existing(cluster: Cluster, note: Callable[[str], None]) -> Topics | None:
    """The topics of a cluster; None, with a note, if they cannot be queried. Raises JobError if given HTTP addresses
    do not answer."""
    try:
        addresses = list(cluster.http) or nsqd_http.http_addresses(cluster.options)
        for address in addresses:
            nsqd_http.get(address, "/info", cluster.secret)
    except nsqd_http.NodeError as error:
        if cluster.http:
            raise JobError(f"--http {error}") from None
        note(f"cannot check whether topics exist: {error}")
        return None
    return Topics(addresses, cluster.secret)


class Topics:
    """The topics of some nsqd. addresses: HOST:PORT of HTTP."""

    def __init__(self, addresses: list[str], secret: nsqd_http.Secret = nsqd_http.NONE):
        self.addresses = addresses
        self._secret = secret

    def channels(self, topic: str) -> set[str] | None:
        """The channels of a topic; None if no nsqd has the topic. Raises NodeError."""
        names: set[str] | None = None
        for address in self.addresses:
            for stats in nsqd_http.topics(address, topic, self._secret):
                names = (names or set()) | {channel["channel_name"] for channel in stats["channels"] or ()}
        return names

    def require_topic(self, topic: str) -> set[str]:
        """The channels of a topic. Raises JobError if it does not exist."""
        channels = self.channels(topic)
        if channels is None:
            names = {stats["topic_name"] for address in self.addresses
                     for stats in nsqd_http.topics(address, secret=self._secret)}
            raise JobError(f"no topic {topic}; {choice('topics', topic, names)}; --create creates it")
        return channels

    def require_channel(self, topic: str, channel: str) -> None:
        """Raises JobError if the topic or its channel does not exist."""
        channels = self.require_topic(topic)
        if channel not in channels:
            raise JobError(f"topic {topic} has no channel {channel}; {choice('channels', channel, channels)}; --create "
                           "creates it")


def choice(kind: str, name: str, names: set[str]) -> str:
    """The existing names, the most similar ones first."""
    if not names:
        return f"there are no {kind}"
    similar = get_close_matches(name, names, MOST_NAMES, 0.5)
    shown = (similar + sorted(names - set(similar)))[:MOST_NAMES]
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(shown)}" + (
        f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else "")
