"""How much of a topic waits at its nsqd for a channel: asked over HTTP, now and then, by a thread of its own.

For metrics only. Where the HTTP port is not known, or does not answer, nothing is known and nothing is said.
"""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import quote

from nsqc.client.stream import split_address
from nsqc.spark.options import Stream

EVERY_SECONDS = 5.0
TIMEOUT = 2.0
MOST_BYTES = 16 << 20


class Depth:
    """Of the channel of a stream; of the topic's own queue as well, from where a new channel gets it."""

    def __init__(self, options: Stream):
        self._options = options
        self._known: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-depth", daemon=True)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more; does not wait for an answer. Idempotent."""
        self._stopped.set()

    def known(self) -> int | None:
        """Messages that waited when it was asked last, on the nsqd that have answered; None where none has."""
        return self._known

    def _run(self) -> None:
        while not self._stopped.is_set():
            found = [depth for address in self._addresses() if (depth := self._ask(address)) is not None]
            self._known = sum(found) if found else None
            self._stopped.wait(EVERY_SECONDS)

    def _addresses(self) -> list[str]:
        """HTTP addresses: as given, as nsqlookupd tells, or the port behind TCP's where that is the same nsqd's."""
        options = self._options
        if options.http:
            return list(options.http)
        found: dict[str, None] = {}
        for address in options.nsqlookupd:
            told = get(address, f"/lookup?topic={quote(options.topic, safe='')}") or {}
            for one in told.get("producers") or ():
                found[f"{one.get('broadcast_address')}:{one.get('http_port')}"] = None
        for address in options.nsqd:
            host, port = split_address(address)
            guess = f"[{host}]:{port + 1}" if ":" in host else f"{host}:{port + 1}"
            if (get(guess, "/info") or {}).get("tcp_port") == port:
                found[guess] = None
        return list(found)

    def _ask(self, address: str) -> int | None:
        options = self._options
        told = get(address, f"/stats?format=json&include_clients=false&topic={quote(options.topic, safe='')}")
        if told is None:
            return None
        total = 0
        for topic in told.get("topics") or ():
            total += topic["depth"] + sum(one["depth"] for one in topic["channels"] or ()
                                          if one["channel_name"] == options.channel)
        return total


def get(address: str, path: str) -> dict[str, Any] | None:
    """A JSON object over HTTP; None where there is none to be had."""
    try:
        host, port = split_address(address)
        one = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            one.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
            answer = one.getresponse()
            told = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else None
        finally:
            one.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return (told.get("data") or told) if isinstance(told, dict) else None
