"""`nsqc relay`, and nsq_to_nsq: topics to other nsqd."""

from nsqc.tools.relay.declaration import TOOL

__all__ = ["TOOL"]
