"""Which nsqd there are: asked of nsqlookupd over HTTP. One that is down costs nothing while another one answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from nsqc.client.address import checked_address, split_address
from nsqc.client.errors import LookupFailed

log = logging.getLogger("nsqc.client")


def lookup(topic: str, nsqlookupd: Iterable[str], timeout: float = 10.0) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, as all nsqlookupd (HOST:PORT of HTTP) together know. Raises
    LookupFailed where none of them answers."""
    from urllib.parse import quote  # as http.client below

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
                found[checked_address(f"{producer['broadcast_address']}:{producer['tcp_port']}")] = None
            answered = True
        except (OSError, ValueError, KeyError, TypeError) as error:
            cause = f"nsqlookupd {address}: {error}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(found)


def ask(address: str, path: str, timeout: float) -> list[dict[str, Any]]:
    """The producers that one nsqlookupd knows; none where it does not know the topic. Raises OSError, ValueError,
    KeyError, TypeError."""
    import http.client  # brings a lot along, and most clients are told their nsqd

    host, port = split_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:
        raise ValueError(f"no answer of HTTP: {error!r}") from None
    finally:
        connection.close()
    if answer.status == 404:
        return []
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    said = json.loads(body)
    producers: list[dict[str, Any]] = (said.get("data") or said)["producers"]
    return producers
