"""Checks before Spark starts that the given nsqd and nsqlookupd answer as such.

Each error is one line with a remedy. Nothing is published or consumed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nsqc.client import ConnectError, Connection, Refused
from nsqc.client.address import split_address
from nsqc.client.lookup import fetch
from nsqc.spark import mistakes, options, values
from nsqc.spark.connect import dial
from nsqc.spark.jobs.running import JobError
from nsqc.wire.outside import JSONError, Service, decode

HANDSHAKE_SECONDS = 2.0
AT_ONCE = 16            # addresses queried concurrently
MOST_BYTES = 1 << 24    # of an answer


class Down(JobError):
    """Nothing listens there; another address may answer."""


def check_nsqd(given: dict[str, str], note: Callable[[str], None] = print) -> None:
    """Connects to all nsqd. A down nsqd is only reported if another one answers; any other wrong answer is an error,
    because retrying does not help. given: options of the data sources. Raises JobError."""
    origin = ""
    if "nsqlookupd" in given:
        addresses = addresses_by_lookup(values.read_addresses(given["nsqlookupd"]), note)
        origin = ", from nsqlookupd (an nsqd's --broadcast-address)"
    else:
        addresses = list(values.read_addresses(given["nsqd"]))
    chosen = options.sink(given | {"timeout": str(HANDSHAKE_SECONDS)})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda address: problem(address, chosen), addresses))
    down = [error for error in results if isinstance(error, Down)]
    wrong = [error for error in results if error is not None and not isinstance(error, Down)]
    if wrong:
        raise JobError(f"{wrong[0]}{origin}")
    if len(down) == len(addresses):
        raise JobError("no nsqd is reachable: " + "; ".join(f"{error}{origin}" for error in down))
    for error in down:
        note(f"{error}; continuing with the others")


def problem(address: str, chosen: options.Sink) -> JobError | None:
    """The error for an nsqd."""
    if (why := closed(address)) is not None:
        return Down(f"{address}: {why}: is nsqd running there? Its default TCP port is 4150")
    try:
        connection = dial(address, chosen)
    except Refused as error:
        if "AUTH" in error.code:
            return JobError(f"{error}: give the secret by --auth-secret or NSQC_AUTH_SECRET")
        return JobError(other_server(address) or f"{error}: is that an nsqd's TCP port?")
    except (ConnectError, ValueError) as error:
        return JobError(other_server(address) or f"{with_address(address, error)}{tls_advice(error, chosen)}")
    try:
        return None if chosen.tls else requires_tls(connection)
    finally:
        connection.close()


def requires_tls(connection: Connection) -> JobError | None:
    """The error for an nsqd that requires TLS: it answers NOP, and that with an error. Any other one only closes the
    connection at its end."""
    try:
        connection.submit(b"NOP\n", 1)
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_WR)
        connection.drain(0)
    except Refused as error:
        if "TLS required" in str(error):
            return JobError(f"{connection.address}: nsqd requires TLS: give --tls, and --tls-ca-file if its "
                            "certificate is signed by a private authority")
    except (ConnectError, OSError):
        pass
    return None


def closed(address: str) -> str | None:
    """Why nothing accepts connections there; None if something does."""
    try:
        socket.create_connection(split_address(address), HANDSHAKE_SECONDS).close()
    except OSError as error:
        return "no answer in time" if isinstance(error, TimeoutError) else str(error.strerror or error)
    return None


def tls_advice(error: Exception, chosen: options.Sink) -> str:
    """The remedy for a TLS error."""
    text = str(error)
    if "does not offer tls" in text:
        return ": omit --tls"
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return ": give the authority by --tls-ca-file, or --no-tls-verify to accept any server"
    if chosen.tls and not chosen.tlsCertFile and ("alert" in text.lower() or "EOF" in text or "reset" in text):
        return ": it may require a client certificate: --tls-cert-file and --tls-key-file"
    return ""


def with_address(address: str, error: Exception) -> str:
    """The text of an error, with the address."""
    return str(error) if address in str(error) else f"{address}: {error}"


def other_server(address: str) -> str:
    """The service that answers there, if it is not an nsqd's TCP port; empty if unknown."""
    found = mistakes.service_at(address)
    if found is None or found.service is Service.NSQD_TCP:
        return ""
    return mistakes.right_port(address, found, Service.NSQD_TCP, mistakes.FLAG)


# Any: JSON
def get_json(address: str, path: str) -> dict[str, Any] | None:
    """An HTTP server's JSON object; {} for any other answer; None if it is not an HTTP server."""
    try:
        _, body = fetch(address, path, HANDSHAKE_SECONDS, MOST_BYTES)
    except (OSError, ValueError):
        return None
    try:
        answer = decode(body)
    except JSONError:
        return {}
    return (answer.get("data") or answer) if isinstance(answer, dict) else {}


# Any: JSON
def producers(address: str) -> list[dict[str, Any]] | None:
    """All nsqd that an nsqlookupd knows; None if it is not an nsqlookupd."""
    nodes = get_json(address, "/nodes")
    return nodes.get("producers") or [] if isinstance(nodes, dict) and "producers" in nodes else None


def addresses_by_lookup(nsqlookupd: tuple[str, ...], note: Callable[[str], None]) -> list[str]:
    """The nsqd listed by any nsqlookupd. Raises JobError if one is not an nsqlookupd, or none answers or knows an
    nsqd."""
    addresses: dict[str, None] = {}
    down = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(producers, nsqlookupd))
    for address, nodes in zip(nsqlookupd, answers, strict=True):
        if nodes is not None:
            addresses |= {f"{node['broadcast_address']}:{node['tcp_port']}": None for node in nodes}
        else:
            down.append(lookup_problem(address))
    if len(down) == len(nsqlookupd):
        raise JobError("no nsqlookupd is reachable: " + "; ".join(map(str, down)))
    for error in down:
        note(f"{error}; continuing with the others")
    if not addresses:
        raise JobError(f"nsqlookupd {', '.join(nsqlookupd)} knows no nsqd: start one with --lookupd-tcp-address, or "
                       "give --nsqd")
    return list(addresses)


def lookup_problem(address: str) -> Down:
    """The error for an nsqlookupd that is down. Raises JobError if something else answers there."""
    if (why := closed(address)) is not None:
        return Down(f"{address}: {why}: is nsqlookupd running there? Its default HTTP port is 4161")
    info = get_json(address, "/info")
    if info is None:
        try:
            dial(address, options.sink({"nsqd": address, "timeout": str(HANDSHAKE_SECONDS)})).close()
        except (Refused, ConnectError):
            raise JobError(f"{address} does not speak HTTP: give nsqlookupd's HTTP port, 4161 by default") from None
        raise JobError(f"{address} is the TCP port of an nsqd: give it as --nsqd {address}")
    if "tcp_port" in info:
        host = address.rpartition(":")[0]
        raise JobError(f"{address} is the HTTP port of an nsqd: give nsqlookupd's, or --nsqd {host}:{info['tcp_port']}")
    raise JobError(f"{address} is an HTTP server, but not an nsqlookupd")
