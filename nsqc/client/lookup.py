"""Finds nsqd by querying nsqlookupd over HTTP. An nsqlookupd that is down does no harm while another one
answers."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import TypedDict

from nsqc.client.address import split_address
from nsqc.client.errors import LookupFailed
from nsqc.client.httpaddress import http_address
from nsqc.client.log import Log
from nsqc.client.trouble import port_hint, reason
from nsqc.wire.answers import Answer, Service, of_info, wrong_port
from nsqc.wire.outside import decode

log = Log("nsqc.client")


class NotHttp(ValueError):
    """The server speaks another protocol. found: the service, if known."""

    def __init__(self, text: str, found: Answer | None):
        super().__init__(text)
        self.found = found


def context_of(tls: bool | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context for https URLs; None: the default one."""
    return tls if isinstance(tls, ssl.SSLContext) else None


class Node(TypedDict):
    """An nsqd in an answer of nsqlookupd; the parts that clients need."""

    broadcast_address: str
    tcp_port: int


def lookup(topic: str, nsqlookupd: Iterable[str], timeout: float = 10.0,
           tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, according to all nsqlookupd (HOST:PORT of HTTP, or URLs) together.
    tls: for https URLs. Raises LookupFailed if none of them answers."""
    from urllib.parse import quote  # as http.client below

    return ask_all(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout, tls)


def nodes(nsqlookupd: Iterable[str], timeout: float = 10.0, tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return ask_all("/nodes", nsqlookupd, timeout, tls)


def ask_all(path: str, nsqlookupd: Iterable[str], timeout: float,
            tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """The nsqd that any nsqlookupd lists, without duplicates. Raises LookupFailed."""
    addresses: dict[str, None] = {}
    answered, cause = False, "no nsqlookupd given"
    for address in nsqlookupd:
        try:
            for node in ask(address, path, timeout, tls):
                found = f"{node['broadcast_address']}:{node['tcp_port']}"
                split_address(found)    # not the path of a unix socket: anyone may announce a node
                addresses[found] = None
            answered = True
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = port_hint(error, address, Service.LOOKUPD_HTTP)
            cause = f"nsqlookupd {http_address(address).text}: {reason(error, context_of(tls))}{hint}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(addresses)


def ask(address: str, path: str, timeout: float, tls: bool | ssl.SSLContext | None = None) -> list[Node]:
    """The nsqd listed by one nsqlookupd; none if it does not know the topic. Raises OSError, ValueError, KeyError,
    TypeError."""
    try:
        status, body = fetch(address, http_address(address).beside(path), timeout, tls=tls)
    except NotHttp as error:
        raise ValueError(wrong_port(error.found, Service.LOOKUPD_HTTP) if error.found is not None
                         else str(error)) from None
    if status == 404:
        if b"TOPIC_NOT_FOUND" in body:
            return []
        # nsqd's HTTP port answers 404, too.
        found = of_info(fetch(address, http_address(address).beside("/info"), timeout, tls=tls)[1])
        raise ValueError(wrong_port(found, Service.LOOKUPD_HTTP) if found.service is not Service.LOOKUPD_HTTP
                         else f"status {status}")
    if status != 200:
        raise ValueError(f"status {status}")
    answer = decode(body)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not a JSON object")
    # An nsqlookupd before 1.0 wraps its answers in "data".
    producers: list[Node] = (answer.get("data") or answer)["producers"]
    return producers


def fetch(address: str, path: str, timeout: float, most_bytes: int | None = None,
          tls: bool | ssl.SSLContext | None = None, secret: str | None = None) -> tuple[int, bytes]:
    """Status and body of a GET; path: with arguments, as it is sent. tls: for https URLs. secret: not sent in clear
    text to a server that has HTTPS. Raises OSError, NotHttp, ValueError."""
    from http.client import HTTPException  # slow to import, and most clients have fixed nsqd

    from nsqc.client.http import answered_by, authorization, connection_to, https_port_of

    where = http_address(address)
    connection = connection_to(where, timeout, context_of(tls) if where.tls else None)
    try:
        if secret and not where.tls and (port := https_port_of(connection, where.below("/info"))):
            raise ValueError(f"its HTTPS is on port {port}: the secret is not sent in clear text")
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0", **authorization(secret),
                                                **where.headers})
        answer = connection.getresponse()
        return answer.status, answer.read(most_bytes)
    except HTTPException as error:
        raise NotHttp(f"not an HTTP answer: {error!r}", answered_by(error)) from None
    finally:
        connection.close()
