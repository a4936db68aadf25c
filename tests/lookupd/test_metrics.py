"""/metrics of the lookup server: counts of registrations."""

import pytest

from nsqc.metrics.declared import OF_NSQLOOKUPD, Type
from tests.metrics import pages
from tests.metrics.pages import OPEN_METRICS, TEXT, scrape, value
from tests.support.daemon import wait_until
from tests.support.lookupd import Node


@pytest.mark.parametrize("accept", [TEXT, OPEN_METRICS])
def test_a_page_has_what_is_declared_and_the_official_client_writes_the_same(lookupd, accept):
    server = lookupd()
    content_type, text = pages.fetch(server.http_port, accept)
    assert content_type.startswith(accept.partition(";")[0])
    read = pages.families(text, accept)
    assert pages.samples_of(pages.families(pages.encoded_again(read, accept), accept)) == pages.samples_of(read)
    assert {metric.name for metric in read} == {
        metric.sample if accept == TEXT and metric.type is Type.INFO else metric.name for metric in OF_NSQLOOKUPD}
    assert [metric.name for metric in read if not metric.samples] == []
    assert value(pages.samples_of(read), "nsqc_connections", kind="http") == 1


def test_registrations_are_counted(lookupd):
    server = lookupd("--inactive-producer-timeout=1h")
    first, second = Node(server, "a.example"), Node(server, "b.example")
    first.ok("REGISTER t c", "REGISTER u")
    second.ok("REGISTER t c", "REGISTER t d#ephemeral")
    server.call("POST", "/topic/create?topic=alone")

    def numbers() -> dict[str, float]:
        return {name.removeprefix("nsqc_lookupd_") + "".join(f" {text}" for _, text in labels): number
                for (name, labels), number in scrape(server.http_port).items()
                if name.startswith("nsqc_lookupd_") and "requests" not in name}

    counts = {"producers active": 2, "producers inactive": 0, "topics": 3, "channels": 2, "registrations": 6,
              "topics_without_producers": 1, "tombstones": 0}
    assert numbers() == counts
    server.call("POST", "/topic/tombstone?topic=u&node=a.example:4151")
    assert numbers() == {**counts, "tombstones": 1, "topics_without_producers": 2}
    second.close()
    wait_until(lambda: numbers() == {**counts, "tombstones": 1, "producers active": 1, "registrations": 3,
                                     "topics_without_producers": 2, "channels": numbers()["channels"]})
    assert value(scrape(server.http_port), "nsqc_connections", kind="tcp") == 1


def test_silent_nodes_are_inactive(lookupd):
    server = lookupd("--inactive-producer-timeout=10ms")
    node = Node(server, "a.example")
    node.ok("REGISTER t")
    wait_until(lambda: value(scrape(server.http_port), "nsqc_lookupd_producers", state="inactive") == 1)
    samples = scrape(server.http_port)
    assert value(samples, "nsqc_lookupd_topics_without_producers") == 1


def test_requests_are_counted_by_route(lookupd):
    server = lookupd()
    for path in ("/ping", "/ping", "/lookup?topic=t", "/nothing", "/debug/pprof/cmdline", "/x" * 50):
        server.call("GET", path)
    samples = scrape(server.http_port)
    counts = {route: value(samples, "nsqc_lookupd_requests_total", route=route)
              for route in ("/ping", "/lookup", "/nodes", "/metrics", "other")}
    assert counts == {"/ping": 2, "/lookup": 1, "/nodes": 0, "/metrics": 1, "other": 3}


def test_scrapes_amid_nodes_that_come_and_go(lookupd):
    server = lookupd()
    for _ in range(20):
        nodes = [Node(server, f"n{number}.example") for number in range(10)]
        for number, node in enumerate(nodes):
            node.ok(*[f"REGISTER t{number}-{topic}" for topic in range(20)])
        samples = scrape(server.http_port)
        assert value(samples, "nsqc_lookupd_registrations") >= 200
        for node in nodes:
            node.close(reset=True)
    wait_until(lambda: value(scrape(server.http_port), "nsqc_lookupd_registrations") == 0)
    assert value(scrape(server.http_port), "nsqc_lookupd_topics_without_producers") == 200
