"""`nsqc to-file`, and nsq_to_file: topics to files."""

from nsqc.tools.tofile.declaration import TOOL

__all__ = ["TOOL"]
