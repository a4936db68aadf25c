"""Reads pages of metrics with the official client's parsers."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any

from prometheus_client import Metric, generate_latest, parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from tests.support.patience import WAIT_SECONDS

TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def fetch(port: int, accept: str = TEXT, tls: ssl.SSLContext | None = None) -> tuple[str, str]:
    """Content type and text; tls: from an HTTPS port."""
    scheme = "http" if tls is None else "https"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/metrics",
                                     headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=tls) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def families(text: str, accept: str = TEXT) -> list[Metric]:
    """Parsed by the official parser, which refuses invalid input."""
    if accept == TEXT:
        return list(parser.text_string_to_metric_families(text))
    return list(openmetrics_parser.text_string_to_metric_families(text))


def samples_of(metrics: list[Metric]) -> Samples:
    """Numbers by name and labels; each pair must be unique."""
    samples: Samples = {}
    for metric in metrics:
        for sample in metric.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def scrape(port: int, accept: str = TEXT) -> Samples:
    """The current metrics of a daemon."""
    return samples_of(families(fetch(port, accept)[1], accept))


def value(samples: Samples, name: str, **labels: str) -> float:
    """One of them."""
    return samples[name, tuple(sorted(labels.items()))]


class Again:
    """A collector of the official client that returns the parsed families."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        """All of it."""
        return self._metrics


def encoded_again(metrics: list[Metric], accept: str) -> str:
    """The same page as the official client writes it."""
    registry: Any = Again(metrics)      # Any: a registry is only asked to collect
    return (generate_latest(registry) if accept == TEXT else generate_openmetrics(registry)).decode()
