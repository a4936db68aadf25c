"""Calls that change the registry: create and delete topics and channels, tombstone nodes."""

from __future__ import annotations

from collections.abc import Awaitable

from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request
from nsqc.lookupd.site import LookupSite
from nsqc.lookupd.views import argument, arguments
from nsqc.wire.names import is_valid_name


def create_topic(site: LookupSite, request: Request) -> None:
    """Adds a topic."""
    name = _valid(arguments(request), "topic")
    _need_room(site, name)
    site.log.info("DB: adding topic(%s)", name)
    site.registry.add_topic(name)


def create_channel(site: LookupSite, request: Request) -> None:
    """Adds a channel and its topic."""
    given = arguments(request)
    topic, channel = _valid(given, "topic"), _valid(given, "channel")
    _need_room(site, topic, channel)
    site.log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
    site.registry.add_channel(topic, channel)
    site.log.info("DB: adding topic(%s)", topic)
    site.registry.add_topic(topic)


def delete_topic(site: LookupSite, request: Request) -> Awaitable[None]:
    """Removes a topic and its channels, until a node registers them again."""
    return _delete_topic(site, argument(arguments(request), "topic").decode("utf-8", "replace"))


async def _delete_topic(site: LookupSite, topic: str) -> None:
    for channel in site.registry.find_channels(topic):
        site.log.info("DB: removing channel(%s) from topic(%s)", channel.subkey, topic)
        site.registry.forget(channel)
        await site.share.rest()
    for known in site.registry.find_topics(topic):
        site.log.info("DB: removing topic(%s)", topic)
        site.registry.forget(known)
        await site.share.rest()


def delete_channel(site: LookupSite, request: Request) -> None:
    """Removes a channel, until a node registers it again."""
    given = arguments(request)
    topic, channel = _valid(given, "topic"), _valid(given, "channel")
    known = site.registry.channels.get(topic, {}).get(channel)
    if known is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    site.log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    site.registry.forget(known)


def tombstone(site: LookupSite, request: Request) -> None:
    """Hides a node from lookups of a topic for a while, before the node drops the topic."""
    given = arguments(request)
    topic = argument(given, "topic").decode("utf-8", "replace")
    node = argument(given, "node").decode("utf-8", "replace")
    site.log.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
    site.registry.tombstone(site.registry.find_topics(topic), node)


def _need_room(site: LookupSite, topic: str, channel: str = "") -> None:
    if not site.registry.has_room(topic, channel):
        raise ApiError(403, f"TOO_MANY_REGISTRATIONS - --max-registrations is {site.registry.most}")


def _valid(given: dict[bytes, bytes], name: str) -> str:
    """A required name argument. Raises ApiError."""
    value = argument(given, name)
    if not is_valid_name(value):
        raise ApiError(400, f"INVALID_ARG_{name.upper()}")
    return value.decode()
