"""A channel's depth in its nsqd: polled over HTTP by a thread.

For metrics only. If the HTTP port is unknown or does not answer, there is no metric and no error.
"""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

from nsqc.client.address import join_address, split_address
from nsqc.client.lookup import fetch
from nsqc.spark.options import Stream
from nsqc.wire.outside import decode

POLL_SECONDS = 5.0
TIMEOUT = 2.0
MOST_BYTES = 16 << 20


class ChannelDepth:
    """The depth of a stream's channel, plus the topic's own queue if the channel is new."""

    def __init__(self, options: Stream):
        self._options = options
        self._latest: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-depth", daemon=True)

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stops polling; does not wait for an answer. Idempotent."""
        self._stopped.set()

    def latest(self) -> int | None:
        """Messages queued at the last poll, on the nsqd that answered; None if none did."""
        return self._latest

    def _run(self) -> None:
        while not self._stopped.is_set():
            depths = [depth for address in self._addresses() if (depth := self._poll(address)) is not None]
            self._latest = sum(depths) if depths else None
            self._stopped.wait(POLL_SECONDS)

    def _addresses(self) -> list[str]:
        """HTTP addresses: given ones, those reported by nsqlookupd, or the port after TCP's if it belongs to the same
        nsqd."""
        options = self._options
        if options.http:
            return list(options.http)
        addresses: dict[str, None] = {}
        for address in options.nsqlookupd:
            answer = get(address, f"/lookup?topic={quote(options.topic, safe='')}") or {}
            for node in answer.get("producers") or ():
                addresses[f"{node.get('broadcast_address')}:{node.get('http_port')}"] = None
        for address in options.nsqd:
            host, port = split_address(address)
            guess = join_address(host, port + 1)
            if (get(guess, "/info", options.http_secret(guess)) or {}).get("tcp_port") == port:
                addresses[guess] = None
        return list(addresses)

    def _poll(self, address: str) -> int | None:
        options = self._options
        stats = get(address, f"/stats?format=json&include_clients=false&topic={quote(options.topic, safe='')}",
                    options.authSecret if address in options.http else options.http_secret(address))
        if stats is None:
            return None
        total = 0
        for topic in stats.get("topics") or ():
            total += topic["depth"] + sum(channel["depth"] for channel in topic["channels"] or ()
                                          if channel["channel_name"] == options.channel)
        return total


# Any: JSON
def get(address: str, path: str, secret: str | None = None) -> dict[str, Any] | None:
    """A JSON object over HTTP; None for any other answer."""
    try:
        status, body = fetch(address, path, TIMEOUT, MOST_BYTES, secret=secret)
        answer = decode(body) if status == 200 else None
    except (OSError, ValueError):
        return None
    return (answer.get("data") or answer) if isinstance(answer, dict) else None
