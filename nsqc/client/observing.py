"""Middlewares for workers: Prometheus metrics, OpenTelemetry spans. Their packages are optional, and imported when a
middleware is created: pip install nsqc[prometheus], nsqc[opentelemetry]."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from nsqc.client.frames import Message
from nsqc.client.handling import Middleware

LABELS = ("topic", "channel")


class Metrics(NamedTuple):
    """The metrics of one registry, which accepts each name once."""

    handled: Any        # Any: a Counter; typed, type checkers of applications would need the optional packages
    seconds: Any        # Any: a Histogram
    running: Any        # Any: a Gauge


def needed(module: str, extra: str) -> ModuleType:
    """An optional module. Raises ImportError, with its remedy."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{error.name} is missing: pip install 'nsqc[{extra}]'", name=error.name) from None


_metrics: weakref.WeakKeyDictionary[object, Metrics] = weakref.WeakKeyDictionary()      # by registry


# Any: a CollectorRegistry
def prometheus(topic: str, channel: str, registry: Any = None) -> Middleware:
    """Counts and times the calls of a handler: nsqc_worker_messages_total by outcome (returned, raised),
    nsqc_worker_seconds, nsqc_worker_running. registry: prometheus_client's default one. Raises ImportError without
    prometheus_client."""
    package = needed("prometheus_client", "prometheus")
    registry = package.REGISTRY if registry is None else registry
    if registry not in _metrics:
        _metrics[registry] = Metrics(
            package.Counter("nsqc_worker_messages", "messages handled", (*LABELS, "outcome"), registry=registry),
            package.Histogram("nsqc_worker_seconds", "time of a handler", LABELS, registry=registry),
            package.Gauge("nsqc_worker_running", "handlers at work", LABELS, registry=registry))
    metrics = _metrics[registry]
    seconds, running = metrics.seconds.labels(topic, channel), metrics.running.labels(topic, channel)
    returned, raised = (metrics.handled.labels(topic, channel, outcome) for outcome in ("returned", "raised"))

    @contextmanager
    def middleware(message: Message) -> Iterator[None]:
        began = time.monotonic()
        running.inc()
        try:
            yield
        except BaseException:
            raised.inc()
            raise
        else:
            returned.inc()
        finally:
            running.dec()
            seconds.observe(time.monotonic() - began)
    return middleware


# Any: a Tracer
def opentelemetry(topic: str, channel: str, tracer: Any = None) -> Middleware:
    """A span per handler call, with the exception it raises; a child of the span of publishing() if the message has its
    headers. tracer: by default the global provider's. Raises ImportError without opentelemetry."""
    package = needed("opentelemetry.trace", "opentelemetry")
    extract = import_module("opentelemetry.propagate").extract
    spans = package.get_tracer("nsqc.worker") if tracer is None else tracer
    common = {"messaging.system": "nsq", "messaging.operation.type": "process", "messaging.destination.name": topic,
              "messaging.consumer.group.name": channel}

    @contextmanager
    def middleware(message: Message) -> Iterator[None]:
        attributes = {**common, "messaging.message.id": message.id.decode(), "nsq.attempts": message.attempts,
                      "messaging.message.body.size": len(message.body)}
        with spans.start_as_current_span(f"process {topic}", context=extract(message.headers),
                                         kind=package.SpanKind.CONSUMER, attributes=attributes):
            yield
    return middleware


@contextmanager
def publishing(topic: str, tracer: Any = None) -> Iterator[dict[str, str]]:     # Any: a Tracer
    """A span for a publish, by any client. Its value is the headers for nsqc.client.with_headers(), by which the span
    of the handler becomes its child. tracer: by default the global provider's. Raises ImportError without
    opentelemetry."""
    package = needed("opentelemetry.trace", "opentelemetry")
    inject = import_module("opentelemetry.propagate").inject
    spans = package.get_tracer("nsqc.producer") if tracer is None else tracer
    attributes = {"messaging.system": "nsq", "messaging.operation.type": "send", "messaging.destination.name": topic}
    with spans.start_as_current_span(f"send {topic}", kind=package.SpanKind.PRODUCER, attributes=attributes):
        headers: dict[str, str] = {}
        inject(headers)
        yield headers
