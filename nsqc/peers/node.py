"""The description of this daemon for its peers."""

from __future__ import annotations

from typing import TypedDict


class NodeInfo(TypedDict):
    """The host and ports it listens on: -1 for a unix socket, 0 without a listener."""

    hostname: str
    tcp_port: int
    http_port: int
