"""Prometheus' two text formats: 0.0.4 and OpenMetrics 1.0. A family is its head, then its samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nsqc.metrics.declared import Metric, Type

if TYPE_CHECKING:
    from nsqc.metrics.durations import Durations, Rising


# ====================================================================== encoding

Sample = tuple[Sequence[str], float]    # the labels' values, and the number


class Format(NamedTuple):
    """One of the two formats."""

    content_type: str
    open_metrics: bool
    end: bytes          # after the last family


TEXT = Format("text/plain; version=0.0.4; charset=utf-8", False, b"")
OPEN_METRICS = Format("application/openmetrics-text; version=1.0.0; charset=utf-8", True, b"# EOF\n")


def head(metric: Metric, form: Format) -> bytes:
    """The lines before the samples. The older format names the samples there, OpenMetrics the family."""
    if not form.open_metrics:
        kind = "gauge" if metric.type is Type.INFO else metric.type.value
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {metric.sample} {text}\n# TYPE {metric.sample} {kind}\n".encode()
    unit = f"# UNIT {metric.name} {metric.unit}\n" if metric.unit else ""
    return f"# TYPE {metric.name} {metric.type.value}\n{unit}# HELP {metric.name} {escaped(metric.help)}\n".encode()


def family(metric: Metric, samples: Iterable[Sample], form: Format) -> bytes:
    """All samples of a family, except histograms."""
    lines = [f"{metric.sample}{labels(metric.labels, values)} {number(value)}\n" for values, value in samples]
    return head(metric, form) + "".join(lines).encode()


def histogram(metric: Metric, durations: Durations | Rising, form: Format) -> bytes:
    """All of a histogram without labels."""
    *counts, total = durations.cumulative()
    lines = [f'{metric.name}_bucket{{le="{number(bound)}"}} {count}\n'
             for bound, count in zip(durations.bounds, counts, strict=True)]
    lines.append(f'{metric.name}_bucket{{le="+Inf"}} {total}\n'
                 f"{metric.name}_count {total}\n{metric.name}_sum {number(durations.sum_ns / 1e9)}\n")
    return head(metric, form) + "".join(lines).encode()


def labels(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels in braces; empty without any."""
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def escaped(text: str) -> str:
    """Escapes a label's value, or a help text of OpenMetrics."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """Formats a number for both formats."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


# ====================================================================== accept
# Chooses between the two formats by the client's Accept header.

_OPEN_METRICS_VERSIONS = ("", "1.0.0")
_TEXT_VERSIONS = ("", "0.0.4")


def format_for(accept: str) -> Format:
    """The format with the highest q; of equals the first one named; TEXT if none is acceptable. Clients without a
    header get TEXT too, and a scraper can use it better than an error."""
    best, most = TEXT, 0.0
    for part in accept.split(","):
        kind, *fields = (field.strip().lower() for field in part.split(";"))
        parameters = dict(field.partition("=")[::2] for field in fields)
        form = _form_of(kind, parameters.get("version", "").strip('"'))
        quality = _quality(parameters.get("q", "1"))
        if form is not None and quality > most:
            best, most = form, quality
    return best


def _form_of(kind: str, version: str) -> Format | None:
    if kind == "application/openmetrics-text":
        return OPEN_METRICS if version in _OPEN_METRICS_VERSIONS else None
    if kind == "text/plain":
        return TEXT if version in _TEXT_VERSIONS else None
    return TEXT if kind in ("text/*", "*/*") else None


def _quality(text: str) -> float:
    """Parses q; 0 if it is not a number."""
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
