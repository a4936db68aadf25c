"""`nsqc pub`, and to_nsq: lines or files as messages."""

from nsqc.tools.pub.declaration import TOOL

__all__ = ["TOOL"]
