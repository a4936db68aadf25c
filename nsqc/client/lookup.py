"""Which nsqd there are: asked of nsqlookupd over HTTP. One that is down costs nothing while another one answers."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterable
from urllib.parse import quote

from nsqc.client.errors import LookupFailed
from nsqc.client.stream import split_address

log = logging.getLogger("nsqc.client")


def lookup(topic: str, nsqlookupd: Iterable[str], timeout: float = 10.0) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, as all nsqlookupd (HOST:PORT of HTTP) together know. Raises
    LookupFailed where none of them answers."""
    return ask_all(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout)


def nodes(nsqlookupd: Iterable[str], timeout: float = 10.0) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return ask_all("/nodes", nsqlookupd, timeout)


def ask_all(path: str, nsqlookupd: Iterable[str], timeout: float) -> list[str]:
    """The nsqd that any of them names, without doubles. Raises LookupFailed."""
    found: dict[str, None] = {}
    answered, cause = False, "no nsqlookupd is given"
    for address in nsqlookupd:
        try:
            for producer in ask(address, path, timeout):
                found[f"{producer['broadcast_address']}:{producer['tcp_port']}"] = None
            answered = True
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            cause = f"nsqlookupd {address}: {error}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(found)


def ask(address: str, path: str, timeout: float) -> list[dict]:
    """The producers that one nsqlookupd knows; none where it does not know the topic."""
    host, port = split_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return []
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    said = json.loads(body)
    return (said.get("data") or said)["producers"]
