"""Frames of a log: layout, checks, walking them, deferred records, collecting new ones. See the .pxd."""


def log_buffers_alive() -> int: ...
