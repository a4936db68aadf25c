"""Middlewares that observe handlers: data in Prometheus and OpenTelemetry, for both kinds of workers."""

import sys

import pytest

from nsqc.client import with_headers
from nsqc.client.observing import opentelemetry, prometheus, publishing
from nsqc.testing import running
from tests.client.conftest import address
from tests.client.test_consumer import publish
from tests.client.test_worker import QUICK, settled
from tests.client.working import KINDS
from tests.support.daemon import wait_until


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def work(request):
    return request.param


def handle(message):
    if message.body == b"bad" and message.attempts == 1:
        raise ValueError("no")


def handled(node, work, middleware) -> None:
    publish(node, b"good", b"bad")
    with work("t", "c", address(node), handler=handle, middlewares=[middleware], **QUICK):
        wait_until(lambda: settled(node))


def test_prometheus(daemon, work):
    import prometheus_client as client

    registry, node = client.CollectorRegistry(), daemon()
    handled(node, work, prometheus("t", "c", registry))
    prometheus("t2", "c", registry)     # a second worker in the process

    def value(name, **labels):
        return registry.get_sample_value(f"nsqc_worker_{name}", {"topic": "t", "channel": "c", **labels})
    assert (value("messages_total", outcome="returned"), value("messages_total", outcome="raised")) == (2, 1)
    assert value("seconds_count") == 3 and value("running") == 0


def test_opentelemetry(daemon, work):
    from opentelemetry.sdk import trace as sdk
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider, node = InMemorySpanExporter(), sdk.TracerProvider(), daemon()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    handled(node, work, opentelemetry("t", "c", provider.get_tracer("test")))
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["process t"] * 3
    assert {(span.attributes["messaging.system"], span.attributes["messaging.consumer.group.name"]) for span in spans} == {("nsq", "c")}
    failed, = (span for span in spans if not span.status.is_ok)
    assert failed.events[0].attributes["exception.type"] == "ValueError" and failed.attributes["nsq.attempts"] == 1


def test_spans_join(daemon, work):
    """The span of a handler is a child of the publisher's, by the headers of the message."""
    from opentelemetry.sdk import trace as sdk
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider, node = InMemorySpanExporter(), sdk.TracerProvider(), daemon()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with publishing("t", tracer) as headers:
        publish(node, with_headers(b"good", {**headers, "content-type": "text/plain"}))
    seen = []

    def see(message):
        seen.append((message.body.partition(b"\n")[0], message.payload, message.headers["content-type"], message.nsqd))
    with work("t", "c", address(node), handler=see, middlewares=[opentelemetry("t", "c", tracer)]):
        wait_until(lambda: settled(node))
    assert seen == [(b"NSQ-Headers/1", b"good", "text/plain", address(node))]
    sent, handled = exporter.get_finished_spans()
    assert (sent.name, handled.name, handled.parent.span_id) == ("send t", "process t", sent.context.span_id)
    assert headers["traceparent"].split("-")[2] == f"{sent.context.span_id:016x}"


def test_running_needs_no_more_than_a_worker(daemon):
    """nsqc.testing.running, with a worker of asyncio."""
    from nsqc.client import aio

    node = daemon()
    publish(node, b"good")
    with running(aio.Worker("t", "c", address(node), handler=handle)):
        wait_until(lambda: settled(node))


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    def publish_with_span():
        with publishing("t"):
            pass
    for call, package, extra in ((lambda: prometheus("t", "c"), "prometheus_client", "prometheus"),
                                 (lambda: opentelemetry("t", "c"), "opentelemetry", "opentelemetry"),
                                 (publish_with_span, "opentelemetry", "opentelemetry")):
        with pytest.raises(ImportError, match=rf"{package}.* is missing: pip install 'nsqc\[{extra}\]'"):
            call()
