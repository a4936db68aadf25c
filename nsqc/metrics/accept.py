"""Which of the two formats a client wants, by its Accept header."""

from __future__ import annotations

from nsqc.metrics.encoding import OPEN_METRICS, TEXT, Format

_OPEN_METRICS_VERSIONS = ("", "1.0.0")
_TEXT_VERSIONS = ("", "0.0.4")


def format_for(accept: str) -> Format:
    """The format with the highest q; of equals the one that is named first, and TEXT if none is acceptable: that is
    what clients without a header get, and a scraper can do more with it than with an error."""
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
    """0 for what is not a number."""
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
