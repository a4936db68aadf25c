"""/livez and /readyz, for supervisors and load balancers; /readyz explains its reasons."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from nsqc.httpd.reply import JSON, Reply, Request, encoded
from nsqc.httpd.site import Site


class Readiness(Struct, frozen=True, gc=False):
    """The answer of /readyz. details: problems for an operator, though clients may come; omitted if there are none."""

    ready: bool
    reasons: list[str]
    details: list[str] | UnsetType = UNSET


def livez(site: Site, request: Request) -> str:
    """OK: the loop runs. A full disk or a drain is no reason to kill the process."""
    return "OK"


def readiness(reasons: list[str], details: list[str] | None = None) -> Reply:
    """200, or 503 and the reasons."""
    return Reply(503 if reasons else 200, encoded(Readiness(not reasons, reasons, details or UNSET)), JSON)
