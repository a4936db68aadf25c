"""The nodes that have the topics, and what their logs hold now. Knows no Spark."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from nsqc.client.address import split_address
from nsqc.client.lookup import fetch
from nsqc.spark.log.api import LogApi, State
from nsqc.spark.log.errors import BadAnswer, LogError, NoLog, NoTopic, Unreachable
from nsqc.spark.log.ranges import Place
from nsqc.spark.options import Log

log = logging.getLogger("nsqc.spark")

AT_ONCE = 16            # nodes that are asked
MOST_BYTES = 64 << 20
# A node that did not answer is asked again after a while: each time-out would hold up a stream.
REST_SECONDS = 5.0
T = TypeVar("T")


@dataclass
class Snapshot:
    """The logs of all nodes at one time."""

    states: dict[Place, State] = field(default_factory=dict)
    http: dict[str, str] = field(default_factory=dict)          # addresses by node
    down: dict[str, str] = field(default_factory=dict)          # why a node or an nsqlookupd did not answer
    missing: set[str] = field(default_factory=set)              # topics asked for that no node has
    answered: int = 0                                           # nodes


class Cluster:
    """Asks nodes for their logs. A node's name is HOST:PORT of TCP, as in the column nsqd. Not for several threads."""

    def __init__(self, options: Log, refresh: float = 0.0) -> None:
        """refresh: seconds for which the answers of nsqlookupd, and lists of topics, are used again."""
        self._options = options
        self._refresh = refresh
        self._refreshed = -refresh
        self._named: dict[str, set[str]] = {}       # topics by node, as they were found last
        self._unsaid: dict[str, str] = {}           # why an nsqlookupd did not answer then
        self._pattern = re.compile(options.topicPattern) if options.topicPattern else None
        self._apis: dict[str, LogApi] = {}          # by HTTP address
        self._http: dict[str, str] = {}             # by node
        self._resting: dict[str, tuple[float, str]] = {}    # by node: until when, and why
        self._listed: dict[str, set[str]] = {}      # topics by node that fit the pattern
        self._in_memory: set[Place] = set()         # that have been warned of

    def wants(self, topic: str) -> bool:
        """Whether the options name the topic."""
        return topic in self._options.topic if self._pattern is None else self._pattern.fullmatch(topic) is not None

    @property
    def seen(self) -> bool:
        """Whether any node has been found."""
        return bool(self._http)

    def close(self) -> None:
        """Ends all connections."""
        for api in self._apis.values():
            api.close()

    def api(self, node: str) -> LogApi:
        """Of a node of the last snapshot."""
        return self._api(self._http[node])

    def look(self, known: Iterable[Place] = ()) -> Snapshot:
        """The logs now; known: that must be looked at even if nobody names their nodes any more.

        A node that does not answer, or something else than the state of a log, is in `down`. Raises NoLog for a topic
        that was named and is kept in memory, and LogError for a node that needs another option.
        """
        found = Snapshot()
        now = time.monotonic()
        if not self._named or now - self._refreshed >= self._refresh:
            self._named = self._looked_up() if self._options.nsqlookupd else self._given()
            self._listed.clear()
            self._refreshed = now
        found.down.update(self._unsaid)
        wanted = {node: set(topics) for node, topics in self._named.items()}
        for place in known:
            if place.node in self._http:
                wanted.setdefault(place.node, set()).add(place.topic)
        nodes = list(wanted)
        for node, states in zip(nodes, self._each(nodes, lambda node: self._states(node, wanted[node])), strict=True):
            if isinstance(states, str):
                found.down[node] = states
            else:
                found.states.update(states)
                found.answered += 1
        found.http = dict(self._http)
        found.missing = set(self._options.topic) - {place.topic for place in found.states}
        return found

    def each(self, places: Iterable[Place], call: Callable[[LogApi, Place], T]) -> dict[Place, T]:
        """The results of calls, those of a node one after the other. Raises LogError."""
        by_node: dict[str, list[Place]] = {}
        for place in places:
            by_node.setdefault(place.node, []).append(place)

        def calls(node: str) -> dict[Place, T]:
            return {place: call(self.api(node), place) for place in by_node[node]}

        results: dict[Place, T] = {}
        for part in self._parallel(list(by_node), calls):
            results.update(part)
        return results

    # ------------------------------------------------------------------ nodes and topics

    def _given(self) -> dict[str, set[str]]:
        """The topics to ask each node of the options for."""
        options = self._options
        for node, address in zip(options.nsqd, options.http, strict=False):
            self._http[node] = address
        return {node: set(options.topic) for node in options.nsqd}

    def _find(self, node: str) -> None:
        """Finds the HTTP address of a node. Raises LogError."""
        host, port = split_address(node)
        guess = _joined(host, port + (2 if self._options.tls else 1))
        if self._api(guess).tcp_port() != port:
            raise LogError(f"{guess} is not the HTTP address of {node}: give it by option http")
        self._http[node] = guess

    def _looked_up(self) -> dict[str, set[str]]:
        """What all nsqlookupd say; what they said last while none answers. Raises Unreachable if none ever has."""
        wanted: dict[str, set[str]] = {}
        unsaid: dict[str, str] = {}
        owners: dict[str, str] = {}     # nodes by HTTP address
        answered = False
        for address in self._options.nsqlookupd:
            try:
                names = self._options.topic
                if self._pattern is not None:
                    listed = _ask(address, "/topics", self._options.timeout)["topics"]
                    names = tuple(name for name in listed if self._pattern.fullmatch(name))
                for name in names:
                    for node in _ask(address, f"/lookup?topic={quote(name, safe='')}",
                                     self._options.timeout).get("producers") or ():
                        host = str(node["broadcast_address"])
                        tcp, web = (_joined(host, int(node[port])) for port in ("tcp_port", "http_port"))
                        split_address(tcp)
                        web = _joined(host, split_address(web)[1] + self._options.tls)
                        if owners.setdefault(web, tcp) != tcp:     # its messages would be read twice
                            raise ValueError(f"{tcp} and {owners[web]} have the same HTTP address {web}")
                        self._http[tcp] = web
                        wanted.setdefault(tcp, set()).add(name)
                answered = True
            except KeyError as error:
                unsaid[f"nsqlookupd {address}"] = f"its answer has no {error}"
            except (OSError, ValueError, TypeError) as error:
                unsaid[f"nsqlookupd {address}"] = str(error)
        self._unsaid = unsaid
        if not answered and not self._named:
            raise Unreachable("no nsqlookupd answers: " + "; ".join(f"{name}: {why}" for name, why in unsaid.items()))
        return wanted if answered else self._named

    def _states(self, node: str, topics: set[str]) -> dict[Place, State]:
        if node not in self._http:
            self._find(node)
        api = self.api(node)
        names = topics
        if self._pattern is not None and self._options.nsqd:
            if node not in self._listed:
                self._listed[node] = {name for name in api.topics() if self._pattern.fullmatch(name)}
            names = topics | self._listed[node]
        states = {}
        for name in sorted(names):
            place = Place(name, node)
            try:
                states[place] = api.state(name)
            except NoTopic:
                continue
            except NoLog as error:
                if self._pattern is None:
                    raise
                if place not in self._in_memory:
                    self._in_memory.add(place)
                    log.warning("%s: it is passed over", error)
        return states

    # ------------------------------------------------------------------ calls

    def _api(self, address: str) -> LogApi:
        if address not in self._apis:
            self._apis[address] = LogApi(address, self._options)
        return self._apis[address]

    def _each(self, nodes: list[str], call: Callable[[str], T]) -> list[T | str]:
        """The result for each node, or why it has none. Raises LogError."""
        def one(node: str) -> T | str:
            until, why = self._resting.get(node, (0.0, ""))
            if time.monotonic() < until:
                return why
            try:
                return call(node)
            except (Unreachable, BadAnswer) as error:
                self._resting[node] = time.monotonic() + REST_SECONDS, str(error)
                return str(error)
        return self._parallel(nodes, one)

    def _parallel(self, nodes: list[str], call: Callable[[str], T]) -> list[T]:
        if len(nodes) < 2:
            return [call(node) for node in nodes]
        with ThreadPoolExecutor(min(AT_ONCE, len(nodes))) as workers:
            return list(workers.map(call, nodes))

    def forget_rests(self) -> None:
        """The next look asks also those that have just not answered."""
        self._resting.clear()
        if self._unsaid:
            self._refreshed = -self._refresh


# Any: JSON
def _ask(address: str, path: str, timeout: float) -> dict[str, Any]:
    """What an nsqlookupd says; nothing about what it does not know."""
    status, body = fetch(address, path, timeout, MOST_BYTES)
    if status == 404:
        return {}
    if status != 200:
        raise ValueError(f"status {status}")
    try:
        answer = json.loads(body)
        found = answer.get("data") or answer
    except (ValueError, AttributeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("its answer is no JSON object")
    return found


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


