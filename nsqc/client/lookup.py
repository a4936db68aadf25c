"""Which nsqd exist: asked of nsqlookupd over HTTP. An nsqlookupd that is down does no harm while another one
answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TypedDict

from nsqc.client.address import checked_address, split_address
from nsqc.client.errors import LookupFailed
from nsqc.wire.outside import decode

log = logging.getLogger("nsqc.client")


class Node(TypedDict):
    """An nsqd in an answer of nsqlookupd; the parts that clients need."""

    broadcast_address: str
    tcp_port: int


def lookup(topic: str, nsqlookupd: Iterable[str], timeout: float = 10.0) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, according to all nsqlookupd (HOST:PORT of HTTP) together. Raises
    LookupFailed if none of them answers."""
    from urllib.parse import quote  # as http.client below

    return ask_all(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout)


def nodes(nsqlookupd: Iterable[str], timeout: float = 10.0) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return ask_all("/nodes", nsqlookupd, timeout)


def ask_all(path: str, nsqlookupd: Iterable[str], timeout: float) -> list[str]:
    """The nsqd that any nsqlookupd names, without duplicates. Raises LookupFailed."""
    addresses: dict[str, None] = {}
    answered, cause = False, "no nsqlookupd is given"
    for address in nsqlookupd:
        try:
            for node in ask(address, path, timeout):
                addresses[checked_address(f"{node['broadcast_address']}:{node['tcp_port']}")] = None
            answered = True
        except (OSError, ValueError, KeyError, TypeError) as error:
            cause = f"nsqlookupd {address}: {error}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(addresses)


def ask(address: str, path: str, timeout: float) -> list[Node]:
    """The nsqd that one nsqlookupd names; none if it does not know the topic. Raises OSError, ValueError, KeyError,
    TypeError."""
    status, body = fetch(address, path, timeout)
    if status == 404:
        return []
    if status != 200:
        raise ValueError(f"status {status}")
    answer = decode(body)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not a JSON object")
    # An nsqlookupd before 1.0 wraps its answers in "data".
    producers: list[Node] = (answer.get("data") or answer)["producers"]
    return producers


def fetch(address: str, path: str, timeout: float, most_bytes: int | None = None) -> tuple[int, bytes]:
    """Status and body of a GET. Raises OSError, ValueError for anything but HTTP."""
    import http.client  # slow to import, and most clients are given their nsqd

    host, port = split_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
        answer = connection.getresponse()
        return answer.status, answer.read(most_bytes)
    except http.client.HTTPException as error:
        raise ValueError(f"not an HTTP answer: {error!r}") from None
    finally:
        connection.close()
