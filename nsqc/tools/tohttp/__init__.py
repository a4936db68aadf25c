"""`nsqc to-http`, and nsq_to_http: messages as HTTP requests."""

from nsqc.tools.tohttp.declaration import TOOL

__all__ = ["TOOL"]
