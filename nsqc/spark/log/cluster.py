"""The nodes with the topics, and the current contents of their logs. Knows no Spark."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from nsqc.client.address import join_address, split_address
from nsqc.client.lookup import NotHttp, fetch
from nsqc.spark.log.api import BadAnswer, DataLoss, LogApi, LogError, NoLog, NoTopic, Resting, State, Unreachable
from nsqc.spark.log.ranges import Place, Range
from nsqc.spark.mistakes import right_port, service_at
from nsqc.spark.options import Log, LogTable
from nsqc.spark.values import EARLIEST, LATEST, Places, Times
from nsqc.wire.outside import JSONError, Service, decode

# ====================================================================== cluster

log = logging.getLogger("nsqc.spark")

AT_ONCE = 16            # nodes queried concurrently
MOST_BYTES = 64 << 20
T = TypeVar("T")


@dataclass
class Snapshot:
    """A snapshot of the logs of all nodes."""

    states: dict[Place, State] = field(default_factory=dict)
    http: dict[str, str] = field(default_factory=dict)          # addresses by node
    down: dict[str, str] = field(default_factory=dict)          # why a node did not answer
    silent: dict[str, str] = field(default_factory=dict)        # why an nsqlookupd did not answer; others did
    lacking: set[Place] = field(default_factory=set)            # logs that were requested but that their nodes lack
    answered: int = 0                                           # nodes

    @property
    def gone(self) -> Set[Place]:
        """Requested logs that no node has: every node answers, and may have another one's address."""
        return frozenset() if self.down else self.lacking


class Cluster:
    """Queries nodes for their logs. A node's name is HOST:PORT of TCP, as in the column nsqd. Not thread-safe."""

    def __init__(self, options: Log, refresh: float = 0.0) -> None:
        """refresh: seconds for which nsqlookupd's answers, and lists of topics, are reused."""
        self._options = options
        self._refresh = refresh
        self._refreshed = -refresh
        self._named: dict[str, set[str]] = {}       # topics by node, from the last lookup
        self._pattern = re.compile(options.topicPattern) if options.topicPattern else None
        self._apis: dict[str, LogApi] = {}          # by HTTP address
        self._http: dict[str, str] = {}             # by node
        self._resting = Resting()
        self._silent: dict[str, str] = {}           # last errors of nsqlookupd
        self._listed: dict[str, set[str]] = {}      # topics by node that match the pattern
        self._in_memory: set[Place] = set()         # already warned of
        self._twins: set[str] = set()               # duplicate names of nodes

    def wants(self, place: Place) -> bool:
        """Whether the options select the log."""
        if self._pattern is not None:
            return self._pattern.fullmatch(place.topic) is not None
        if self._options.assign is not None:
            return place.node in self._options.assign.get(place.topic, ())
        return place.topic in self._options.topic

    def need_topics(self, snapshot: Snapshot, known: Collection[Place] = ()) -> None:
        """Raises NoTopic for a missing topic of the options, unless they allow it. known: logs that existed before:
        they are not misspelt."""
        options, there = self._options, {*snapshot.states, *known}
        topics = {place.topic for place in there}
        missing = [f"no node has topic {name}" for name in options.topic if name not in topics]
        missing += [f"topic {name} is not at {node}" for name, nodes in (options.assign or {}).items() for node in nodes
                    if Place(name, node) not in there]
        if self._pattern is not None and not there:
            missing.append(f"no log-backed topic matches topicPattern={options.topicPattern}")
        if missing and not options.allowMissingTopics:
            raise NoTopic(f"nsq: {'; '.join(missing)}; allowMissingTopics=true starts without it")

    def located(self, parts: Sequence[Range]) -> tuple[Range, ...]:
        """Ranges with all that executors need."""
        return tuple(parts)

    def close(self) -> None:
        """Closes all connections."""
        for api in self._apis.values():
            api.close()

    def api(self, node: str) -> LogApi:
        """The HTTP API of a node of the last snapshot."""
        return self._api(self._http[node])

    def look(self, known: Collection[Place] = ()) -> Snapshot:
        """The current logs; known: logs to query even if their nodes are no longer listed.

        A node that does not answer, or answers unexpectedly, is in `down`. Raises NoLog for a given topic that is
        stored in memory, and LogError for a node that needs another option.
        """
        found = Snapshot()
        now = time.monotonic()
        if not self._named or now - self._refreshed >= self._refresh:
            try:
                self._named = self._looked_up() if self._options.nsqlookupd else self._given()
            except Unreachable:
                if not self._named:
                    raise
            self._listed.clear()
            self._refreshed = now
            if self._options.nsqlookupd:
                self._find_registered(known)
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
                found.lacking |= {Place(topic, node) for topic in wanted[node]} - states.keys()
        self._leave_out_twins(found.states, set(known))
        found.http = dict(self._http)
        found.silent = dict(self._silent)
        return found

    def each(self, places: Iterable[Place], call: Callable[[LogApi, Place], T]) -> dict[Place, T]:
        """The results of calls, sequential per node. Raises LogError."""
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
        """The topics to query each node of the options for."""
        options = self._options
        for node, address in zip(options.nsqd, options.http, strict=False):
            self._http[node] = address
        named = (*options.topic, *(options.assign or ()))
        wanted = {node: {topic for topic in named if self.wants(Place(topic, node))} for node in options.nsqd}
        return wanted if options.assign is None else {node: topics for node, topics in wanted.items() if topics}

    def _find(self, node: str) -> None:
        """Finds the HTTP address of a node. Raises LogError."""
        host, port = split_address(node)
        guess = join_address(host, port + (2 if self._options.tls else 1))
        try:
            found = self._api(guess).tcp_port()
        except LogError as error:
            service = service_at(node)
            if service is not None and service.service is not Service.NSQD_TCP:
                raise LogError(f"nsq: {right_port(node, service, Service.NSQD_TCP)}") from None
            if service is None:
                raise
            raise type(error)(f"{error}; this is the default HTTP port of {node}: give another one by "
                              "option http") from None
        if found != port:
            raise LogError(f"nsq: {guess} is not the HTTP address of {node}: give it by option http")
        self._http[node] = guess

    def _looked_up(self) -> dict[str, set[str]]:
        """The topics to query each node for that any nsqlookupd lists: a down nsqlookupd does no harm while another one
        answers. Raises Unreachable."""
        wanted: dict[str, set[str]] = {}
        owners: dict[str, str] = {}     # nodes by HTTP address
        down: dict[str, str] = {}
        for address in self._options.nsqlookupd:
            try:
                for name in self._topics_at(address):
                    for node, http in self._producers_at(address, name):
                        if owners.setdefault(http, node) != node:   # its messages would be read twice
                            raise ValueError(f"{node} and {owners[http]} have the same HTTP address {http}")
                        self._http[node] = http
                        if self.wants(Place(name, node)):
                            wanted.setdefault(node, set()).add(name)
            except KeyError as error:
                down[f"nsqlookupd {address}"] = f"its answer has no {error}"
            except (OSError, ValueError, TypeError) as error:
                down[f"nsqlookupd {address}"] = str(error)
        self._silent = down
        texts = [f"{name}: {why}" for name, why in down.items()]
        if len(down) == len(self._options.nsqlookupd):
            raise Unreachable(f"no nsqlookupd answers: {'; '.join(texts)}")
        for text in texts:
            log.warning("%s", text)
        return wanted

    def _find_registered(self, known: Collection[Place]) -> None:
        """Finds the HTTP addresses of nodes that no nsqlookupd lists for any topic: nodes that had a log before, which
        may have been deleted. Raises Unreachable if there are no nodes at all."""
        lost = {place.node for place in known} - self._http.keys()
        if self._named and not lost:
            return
        registered: dict[str, str] = {}
        for address in self._options.nsqlookupd:
            with suppress(OSError, ValueError, KeyError, TypeError):    # reported by _looked_up
                registered |= dict(self._nodes_in(_ask(address, "/nodes", self._options.timeout)))
        self._http |= {node: http for node, http in registered.items() if node in lost}
        if not self._named and not registered:
            raise Unreachable(f"nsqlookupd {', '.join(self._options.nsqlookupd)} knows no nsqd")

    def _topics_at(self, address: str) -> list[str]:
        if self._pattern is None:
            return [*self._options.topic, *(self._options.assign or ())]
        return [name for name in _ask(address, "/topics", self._options.timeout)["topics"]
                if self._pattern.fullmatch(name) and not name.endswith("#ephemeral")]

    def _producers_at(self, address: str, topic: str) -> list[tuple[str, str]]:
        """TCP and HTTP addresses of the nodes that have a topic. HTTPS is guessed to be one port above."""
        return self._nodes_in(_ask(address, f"/lookup?topic={quote(topic, safe='')}", self._options.timeout))

    # Any: JSON
    def _nodes_in(self, answer: dict[str, Any]) -> list[tuple[str, str]]:
        found = []
        for node in answer.get("producers") or ():
            host, port = str(node["broadcast_address"]), int(node["http_port"])
            tcp, http = join_address(host, int(node["tcp_port"])), join_address(host, port)
            split_address(tcp), split_address(http)     # raise for invalid ones
            found.append((tcp, join_address(host, port + self._options.tls)))
        return found

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
                    log.warning("%s: ignored", error)
        return states

    def _leave_out_twins(self, states: dict[Place, State], known: Collection[Place]) -> None:
        """Merges a node found under two names, preferring a known name. Raises LogError for a copy of a log: its
        messages would come twice."""
        owners: dict[tuple[str, str], Place] = {}
        processes: dict[str, tuple[object, ...]] = {}   # of nodes: each is queried once, for any number of topics

        def process(node: str) -> tuple[object, ...]:
            if node not in processes:
                processes[node] = self.api(node).process()
            return processes[node]

        for place in sorted(states, key=lambda place: (place not in known, place)):
            log_id = states[place].id
            owner = owners.setdefault((place.topic, log_id), place)
            if owner == place or not log_id:
                continue
            if process(owner.node) != process(place.node):
                raise LogError(f"nsq: topic {place.topic} is the same log at {owner.node} and at {place.node} (id "
                               f"{log_id}): one is a copy of the other's files. Read only one of them")
            del states[place]
            if place.node not in self._twins:
                self._twins.add(place.node)
                log.warning("%s and %s are the same node: using the first name", owner.node, place.node)

    # ------------------------------------------------------------------ calls

    def _api(self, address: str) -> LogApi:
        if address not in self._apis:
            self._apis[address] = LogApi(address, self._options)
        return self._apis[address]

    def _each(self, nodes: list[str], call: Callable[[str], T]) -> list[T | str]:
        """The result for each node, or its error. Raises LogError."""
        def one(node: str) -> T | str:
            why = self._resting.why(node, lambda: call(node))
            if why is not None:
                return why
            try:
                return call(node)
            except (Unreachable, BadAnswer) as error:
                self._resting.failed(node, error)
                return str(error)
        return self._parallel(nodes, one)

    def _parallel(self, nodes: list[str], call: Callable[[str], T]) -> list[T]:
        if len(nodes) < 2:
            return [call(node) for node in nodes]
        with ThreadPoolExecutor(min(AT_ONCE, len(nodes))) as workers:
            return list(workers.map(call, nodes))

    def forget_rests(self) -> None:
        """Makes the next look also wait for nodes that have just not answered."""
        self._resting.forget()


# Any: JSON
def _ask(address: str, path: str, timeout: float) -> dict[str, Any]:
    """The answer of an nsqlookupd, empty for an unknown topic. Raises LogError for another service, OSError,
    ValueError."""
    try:
        status, body = fetch(address, path, timeout, MOST_BYTES)
    except NotHttp as error:
        if error.found is None:
            raise
        raise LogError(f"nsq: {right_port(address, error.found, Service.LOOKUPD_HTTP)}") from None
    if status == 404:
        # nsqd's HTTP port answers 404, too.
        if b"TOPIC_NOT_FOUND" not in body and (found := service_at(address)) is not None and (
                found.service is not Service.LOOKUPD_HTTP):
            raise LogError(f"nsq: {right_port(address, found, Service.LOOKUPD_HTTP)}")
        return {}
    if status != 200:
        raise ValueError(f"status {status}")
    try:
        answer = decode(body)
        said = answer.get("data") or answer
    except (JSONError, AttributeError):
        said = None
    if not isinstance(said, dict):
        raise ValueError("its answer is not a JSON object")
    return said


# ====================================================================== bounds
# The start and end of a query in each log, from options. Knows no Spark.


MS = 1_000_000
# In the JSON of options, as in Kafka's.
LATEST_NUMBER, EARLIEST_NUMBER = -1, -2


def starts(options: Log, cluster: Cluster, snapshot: Snapshot, default: str) -> dict[Place, int]:
    """The first offset of each log. Raises LogError."""
    times = _times("startingOffsetsByTimestamp", options.startingTimestamp, options.startingOffsetsByTimestamp,
                   snapshot)
    if times is not None:
        found = _at(times, cluster)
        if options.startingOffsetsByTimestampStrategy == "error":
            _need_messages(found, times, snapshot)
        return found
    return _places("startingOffsets", options, options.startingOffsets or default, snapshot)


def ends(options: LogTable, cluster: Cluster, snapshot: Snapshot) -> dict[Place, int]:
    """The offset after the last one of each log. Raises LogError."""
    times = _times("endingOffsetsByTimestamp", options.endingTimestamp, options.endingOffsetsByTimestamp, snapshot)
    if times is not None:
        return _at(times, cluster)
    return _places("endingOffsets", options, options.endingOffsets or LATEST, snapshot)


def _at(times: Mapping[Place, int], cluster: Cluster) -> dict[Place, int]:
    """The offsets of the first messages at or after these times, in milliseconds."""
    return cluster.each(times, lambda api, place: api.offset_at(place.topic, times[place] * MS))


def _need_messages(found: Mapping[Place, int], times: Mapping[Place, int], snapshot: Snapshot) -> None:
    """Raises LogError for a log without a message at or after its time."""
    for place, offset in found.items():
        if offset >= snapshot.states[place].next:
            raise LogError(f"nsq: topic {place.topic} at {place.node} has no message published at {times[place]} ms "
                           "since 1970 or later; startingOffsetsByTimestampStrategy=latest starts at its end")


def _times(name: str, every: int | None, given: Times | None, snapshot: Snapshot) -> dict[Place, int] | None:
    """The time for each log; None: not in the options. Raises LogError."""
    if given is None:
        return None if every is None else dict.fromkeys(snapshot.states, every)
    times: dict[Place, int] = {}
    for topic, moment in given.items():
        if isinstance(moment, dict):
            times |= {Place(topic, node): ms for node, ms in moment.items()}
        else:
            nodes = [place.node for place in snapshot.states if place.topic == topic]
            times |= {Place(topic, node): moment for node in nodes or ["any node"]}
    _covered(name, times.keys(), snapshot, "a time in ms since 1970")
    return times


def _covered(name: str, given: Set[Place], snapshot: Snapshot, what: str) -> None:
    """Raises LogError unless these are all logs."""
    states = snapshot.states
    if unknown := sorted(given - states.keys()):
        known = ", ".join(f"{place.topic} at {place.node}" for place in sorted(states)) or "none"
        raise LogError(f"nsq: option {name} names topic {unknown[0].topic} at {unknown[0].node}, where there is no "
                       f"such log; there are {known}")
    if missing := sorted(states.keys() - given):
        raise LogError(f"nsq: option {name} has no entry for topic {missing[0].topic} at {missing[0].node}: give "
                       f"{what}")


def _places(name: str, options: Log, where: Places, snapshot: Snapshot) -> dict[Place, int]:
    states = snapshot.states
    if where == EARLIEST:
        return {place: state.first for place, state in states.items()}
    if where == LATEST:
        return {place: state.next for place, state in states.items()}
    assert isinstance(where, dict)
    given = {Place(topic, node): offset for topic, nodes in where.items() for node, offset in nodes.items()}
    _covered(name, given.keys(), snapshot, "an offset, -2 for earliest or -1 for latest")
    return {place: _checked(name, options, place, offset, snapshot) for place, offset in given.items()}


def _checked(name: str, options: Log, place: Place, offset: int, snapshot: Snapshot) -> int:
    """An existing offset, or the end."""
    state = snapshot.states[place]
    if offset == EARLIEST_NUMBER:
        return state.first
    if offset == LATEST_NUMBER or offset == state.next:
        return state.next
    if state.first <= offset < state.next:
        return offset
    error = DataLoss(f"nsq: option {name}: topic {place.topic} at {place.node} has offsets {state.first} to "
                     f"{state.next}, not {offset}")
    if options.failOnDataLoss:
        raise error
    nearest = min(max(offset, state.first), state.next)
    log.warning("%s: using %d instead (failOnDataLoss=false)", error, nearest)
    return nearest
