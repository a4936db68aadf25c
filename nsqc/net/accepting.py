"""Whether new clients are accepted."""

from __future__ import annotations

from nsqc.net.limits import ConnectionLimits
from nsqc.net.listener import Listeners


def not_accepting(limits: ConnectionLimits, listeners: Listeners) -> str | None:
    """The reason why new clients wait or are refused; None: they are accepted."""
    if listeners.paused:
        return "new clients wait: the limit of open files allows no more"
    if 0 < limits.max_connections <= limits.connections:
        return f"new clients are refused: --max-connections {limits.max_connections} reached"
    return None
