"""Whether new clients are let in."""

from __future__ import annotations

from nsqc.net.limits import ConnectionLimits
from nsqc.net.listener import Listeners


def not_accepting(limits: ConnectionLimits, listeners: Listeners) -> str | None:
    """Why new clients have to wait or are refused; None: they are let in."""
    if listeners.paused:
        return "no new client is accepted: the limit of open files leaves no room"
    if 0 < limits.max_connections <= limits.connections:
        return f"new clients are refused: --max-connections {limits.max_connections} reached"
    return None
