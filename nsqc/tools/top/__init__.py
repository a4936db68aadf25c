"""`nsqc top`: a live screen of nodes, topics, channels and clients."""

from nsqc.tools.top.declaration import TOOL

__all__ = ["TOOL"]
