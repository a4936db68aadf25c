"""Before Spark starts: do the nsqd and nsqlookupd answer as such, and are the topic and channel there?

Each complaint is one line that says what to do. Nothing is published or consumed.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from nsqc.spark import connect, options
from nsqc.spark.jobs import nsqd_http
from nsqc.spark.jobs.running import JobError

SECONDS = 2.0
AT_ONCE = 16            # addresses asked at a time
MOST_NAMES = 8          # that a complaint lists


class Down(JobError):
    """Nobody is there; another one may be."""


def shake(given: dict[str, str], note: Callable[[str], Any] = print) -> None:
    """Shakes hands with all nsqd. One that is down is noted while another one answers; whatever answers otherwise than
    nsqd does is an error, for it will not change. given: the data sources' options. Raises JobError."""
    named = ""
    if "nsqlookupd" in given:
        addresses = addresses_by_lookup(values.read_addresses(given["nsqlookupd"]), note)
        named = ", which nsqlookupd names (an nsqd's --broadcast-address)"
    else:
        addresses = list(values.read_addresses(given["nsqd"]))
    chosen = options.sink(given | {"timeout": str(SECONDS)})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda address: complaint(address, chosen), addresses))
    down = [error for error in results if isinstance(error, Down)]
    wrong = [error for error in results if error is not None and not isinstance(error, Down)]
    if wrong:
        raise JobError(f"{wrong[0]}{named}")
    if len(down) == len(addresses):
        raise JobError("no nsqd can be reached: " + "; ".join(f"{error}{named}" for error in down))
    for error in down:
        note(f"{error}; going on with the others")


def complaint(address: str, chosen: options.Sink) -> JobError | None:
    """What is wrong with an nsqd."""
    if (why := closed(address)) is not None:
        return Down(f"{address}: {why}: is nsqd running there? Its TCP port is 4150 unless it was told otherwise")
    try:
        one = link.connect(address, chosen)
    except link.Refused as error:
        if "AUTH" in error.code:
            return JobError(f"{error}: give the secret by --auth-secret or NSQC_AUTH_SECRET")
        return JobError(stranger(address) or f"{error}: is that an nsqd's TCP port?")
    except (link.ConnectError, ValueError) as error:
        return JobError(stranger(address) or f"{with_address(address, error)}{tls_advice(error, chosen)}")
    try:
        # Refused in any case, and in other words where TLS is demanded of who has none.
        one.submit(b"CLS\n", 1)
        one.drain(0)
    except link.Refused as error:
        if "TLS required" in str(error):
            return JobError(f"{address}: nsqd demands TLS: give --tls, and --tls-ca-file where its certificate is "
                            "signed by an authority of your own")
    except link.ConnectError:
        pass
    finally:
        one.close()
    return None


def closed(address: str) -> str | None:
    """Why nobody takes a connection there; None where somebody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS).close()
    except OSError as error:
        return "no answer in time" if isinstance(error, TimeoutError) else str(error.strerror or error)
    return None


def tls_advice(error: Exception, chosen: options.Sink) -> str:
    """What to do about an error of TLS."""
    text = str(error)
    if "does not offer tls" in text:
        return ": leave out --tls"
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return ": give the authority by --tls-ca-file, or --no-tls-verify for any server"
    if chosen.tls and not chosen.tlsCertFile and ("alert" in text.lower() or "EOF" in text or "reset" in text):
        return ": it may want a certificate of yours: --tls-cert-file and --tls-key-file"
    return ""


def with_address(address: str, error: Exception) -> str:
    """The error's text, which names the address."""
    return str(error) if address in str(error) else f"{address}: {error}"


def stranger(address: str) -> str:
    """Who answers there, where it is no nsqd's TCP port; empty where that cannot be said."""
    told = ask(address, "/info")
    if told is None:
        return ""
    host = address.rpartition(":")[0]
    if "tcp_port" in told:
        return f"{address} is the HTTP port of an nsqd: give its TCP port, --nsqd {host}:{told['tcp_port']}"
    if isinstance(producers(address), list):
        return f"{address} is the HTTP port of an nsqlookupd: give it as --nsqlookupd {address}"
    return f"{address} is an HTTP server and no nsqd: give nsqd's TCP port, 4150 unless it was told otherwise"


def ask(address: str, path: str) -> dict[str, Any] | None:
    """The JSON that an HTTP server answers; {} where it answers something else; None where it is no HTTP server."""
    host, _, port = address.rpartition(":")
    one = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=SECONDS)
    try:
        one.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
        answer = one.getresponse()
        body = answer.read(1 << 24)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        one.close()
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told.get("data") or told if isinstance(told, dict) else {}


def producers(address: str) -> list[dict] | None:
    """All nsqd that an nsqlookupd knows; None where it is none."""
    told = ask(address, "/nodes")
    return told.get("producers") or [] if isinstance(told, dict) and "producers" in told else None


def addresses_by_lookup(lookupd: tuple[str, ...], note: Callable[[str], Any]) -> list[str]:
    """The nsqd that any of them names. Raises JobError where one is no nsqlookupd, none answers or knows an nsqd."""
    found: dict[str, None] = {}
    down = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(producers, lookupd))
    for address, known in zip(lookupd, answers, strict=True):
        if known is not None:
            found |= {f"{one['broadcast_address']}:{one['tcp_port']}": None for one in known}
        elif (error := lookup_complaint(address)) is not None:
            down.append(error)
    if len(down) == len(lookupd):
        raise JobError("no nsqlookupd can be reached: " + "; ".join(map(str, down)))
    for error in down:
        note(f"{error}; going on with the others")
    if not found:
        raise JobError(f"nsqlookupd {', '.join(lookupd)} knows no nsqd: start one with --lookupd-tcp-address, or give "
                       "--nsqd")
    return list(found)


def lookup_complaint(address: str) -> Down:
    """An nsqlookupd that is down. Raises JobError where there is something else."""
    if (why := closed(address)) is not None:
        return Down(f"{address}: {why}: is nsqlookupd running there? Its HTTP port is 4161 unless it was told "
                    "otherwise")
    told = ask(address, "/info")
    if told is None:
        try:
            link.connect(address, options.sink({"nsqd": address, "timeout": str(SECONDS)})).close()
        except (link.Refused, link.ConnectError):
            raise JobError(f"{address} speaks no HTTP: give nsqlookupd's HTTP port, 4161 unless it was told otherwise"
                           ) from None
        raise JobError(f"{address} is the TCP port of an nsqd: give it as --nsqd {address}")
    if "tcp_port" in told:
        host = address.rpartition(":")[0]
        raise JobError(f"{address} is the HTTP port of an nsqd: give nsqlookupd's, or --nsqd {host}:{told['tcp_port']}")
    raise JobError(f"{address} is an HTTP server and no nsqlookupd")


# ---------------------------------------------------------------------- topics and channels

def known(given: dict[str, str], http_addresses: tuple[str, ...], note: Callable[[str], Any]) -> Known | None:
    """Where to ask for topics; None, with a note, where that cannot be found out."""
    try:
        addresses = list(http_addresses) or nsqd_http.http_addresses(given)
        for address in addresses:
            nsqd_http.get(address, "/info")
    except nsqd_http.NodeError as error:
        if http_addresses:
            raise JobError(f"--http {error}") from None
        note(f"whether topics are there is not known: {error}")
        return None
    return Known(addresses)


class Known:
    """What the nsqd have, over HTTP. addresses: HOST:PORT of HTTP."""

    def __init__(self, addresses: list[str]):
        self.addresses = addresses

    def channels(self, topic: str) -> set[str] | None:
        """Of a topic; None where no nsqd has the topic. Raises NodeError."""
        found: set[str] | None = None
        for address in self.addresses:
            for one in self._stats(address, f"&topic={quote(topic, safe='')}"):
                found = (found or set()) | {channel["channel_name"] for channel in one["channels"] or ()}
        return found

    def need_topic(self, topic: str) -> set[str]:
        """Its channels. Raises JobError where it is not there."""
        found = self.channels(topic)
        if found is None:
            there = {one["topic_name"] for address in self.addresses for one in self._stats(address, "")}
            raise JobError(f"there is no topic {topic}; {choice('topics', topic, there)}; --create makes it")
        return found

    def need_channel(self, topic: str, channel: str) -> None:
        """Raises JobError where the topic or its channel is not there."""
        found = self.need_topic(topic)
        if channel not in found:
            raise JobError(f"topic {topic} has no channel {channel}; {choice('channels', channel, found)}; --create "
                           "makes it")

    @staticmethod
    def _stats(address: str, more: str) -> list[dict]:
        return nsqd_http.get(address, f"/stats?format=json&include_clients=false{more}")["topics"] or []


def choice(what: str, name: str, there: set[str]) -> str:
    """Which names there are, the likely ones first."""
    if not there:
        return f"there are no {what}"
    likely = get_close_matches(name, there, MOST_NAMES, 0.5)
    shown = (likely + sorted(there - set(likely)))[:MOST_NAMES]
    return f"there {'is' if len(there) == 1 else 'are'} {', '.join(shown)}" + (
        f" and {len(there) - len(shown):,} more" if len(there) > len(shown) else "")
