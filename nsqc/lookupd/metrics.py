"""/metrics of the lookup server: numbers only, independent of names."""

from __future__ import annotations

from nsqc.httpd import metrics as scrape
from nsqc.httpd.reply import Reply, Request
from nsqc.lookupd.site import LookupSite
from nsqc.metrics import declared
from nsqc.metrics.encoding import Format, family

_AT_ONCE = 64       # topics and nodes between two clock reads


async def metrics(site: LookupSite, request: Request) -> Reply:
    """All metrics, in the format that the client asks for."""
    form = scrape.wanted(request.accept)
    facts = scrape.Facts("nsqlookupd", site.start_time, site.lags, site.hub.limits, len(site.hub.connections),
                         site.servers)
    families = await scrape.common(facts, site.threads, form)
    async with site.surveys:
        families += await _registry(site, form)
    return Reply(200, b"".join(families) + form.end, form.content_type)


async def _registry(site: LookupSite, form: Format) -> list[bytes]:
    registry, share = site.registry, site.share
    connected = [peer for peer in registry.clients.producers if not peer.gone]
    active = set(registry.active(connected))
    registered = tombstones = 0
    for number, peer in enumerate(connected):
        if peer.gone:
            continue
        registered += len(peer.registrations) - (registry.clients in peer.registrations)
        if peer.tombstones:
            tombstones += sum(registry.is_tombstoned(one.producers.get(peer, 0)) for one in list(peer.registrations))
        if number % _AT_ONCE == 0:
            await share.rest()
    topics = registry.find_topics("*")
    without = 0
    for number, topic in enumerate(topics):
        without += not any(peer in active and not peer.gone and not registry.is_tombstoned(marked)
                           for peer, marked in topic.producers.items())
        if number % _AT_ONCE == 0:
            await share.rest()
    states = [("active", sum(not peer.gone for peer in active)),
              ("inactive", sum(not peer.gone and peer not in active for peer in connected))]
    return [
        family(declared.PRODUCERS, scrape.by_label(states), form),
        family(declared.KNOWN_TOPICS, [((), len(topics))], form),
        family(declared.KNOWN_CHANNELS, [((), sum(map(len, registry.channels.values())))], form),
        family(declared.TOPICS_WITHOUT, [((), without)], form),
        family(declared.REGISTRATIONS, [((), registered)], form),
        family(declared.TOMBSTONES, [((), tombstones)], form),
        family(declared.REQUESTS, scrape.by_label(site.requests.items()), form),
    ]
