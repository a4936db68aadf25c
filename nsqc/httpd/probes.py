"""/livez and /readyz, for whatever supervises a daemon or distributes clients. What is not ready is said in words."""

from __future__ import annotations

from msgspec import Struct

from nsqc.httpd.reply import JSON, Reply, encoded
from nsqc.httpd.request import Request
from nsqc.httpd.site import Site


class Readiness(Struct, frozen=True, gc=False):
    """The answer of /readyz."""

    ready: bool
    reasons: list[str]


def livez(site: Site, request: Request) -> str:
    """OK: the loop runs. A full disk or a drain are not a reason to be killed."""
    return "OK"


def readiness(reasons: list[str]) -> Reply:
    """200, or 503 and the reasons."""
    return Reply(503 if reasons else 200, encoded(Readiness(not reasons, reasons)), JSON)
