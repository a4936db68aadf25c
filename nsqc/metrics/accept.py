"""Chooses between the two formats by the client's Accept header."""

from __future__ import annotations

from nsqc.metrics.encoding import OPEN_METRICS, TEXT, Format

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
