"""`nsqc bench`: how fast an nsqd takes and delivers messages, and how long each is under way."""

from nsqc.tools.bench.declaration import TOOL

__all__ = ["TOOL"]
