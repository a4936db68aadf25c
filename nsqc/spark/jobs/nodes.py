"""A cluster's nsqd over HTTP: queries of jobs about log-backed topics, before Spark starts or instead of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from urllib.parse import quote

import typer

from nsqc.client.address import join_address, split_address
from nsqc.spark import options, values
from nsqc.spark.jobs import nsqd_http
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.handshake import AT_ONCE, HANDSHAKE_SECONDS, addresses_by_lookup, closed, other_server, producers
from nsqc.spark.jobs.running import JobError
from nsqc.spark.log import ranges
from nsqc.spark.log.api import BadAnswer, LogApi, LogError, NoTopic, State, Unreachable
from nsqc.spark.log.checkpoint import nested
from nsqc.spark.log.ranges import Place
from nsqc.spark.values import read_json
from nsqc.wire.parser import is_ephemeral

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# ====================================================================== nodes

class Rule(NamedTuple):
    """Whether a topic is log-backed, whether finished messages are retained for a time, and whether repeated publishes
    are recognized."""

    log: bool
    stays: bool
    dedupes: bool


class Channel(TypedDict):
    """A channel of a log-backed topic, with the field names of GET /topic/log."""

    channel_name: str
    position: int
    oldest_unfinished: int
    lag_messages: int
    lag_seconds: float
    in_flight: int
    deferred: int


class Holding(NamedTuple):
    """The contents of a log, and its channels."""

    log: State
    channels: tuple[Channel, ...]


class NodeApi(LogApi):
    """Calls that readers of a log do not need. Raises LogApi's exceptions."""

    def rule(self, topic: str) -> Rule:
        """The storage of a topic, even if it does not exist yet."""
        path = f"/topic/rules?topic={quote(topic, safe='')}"
        answer = self._open(path)
        if answer.status == 404:        # nsqd has no rules
            self._body(answer)
            return Rule(False, False, False)
        if answer.status != 200:
            self._refused(answer, topic)
        self._body(answer)
        rule = self._json(path, topic)
        return Rule(rule.get("storage") == "log", rule.get("retain_time") != "0s",
                    rule.get("dedupe", "0s") != "0s")

    def log_state(self, topic: str) -> State | None:
        """The contents of a topic's log; None if the node does not have the topic."""
        try:
            return self.state(topic)
        except NoTopic:
            return None

    def create(self, topic: str) -> None:
        """Creates a topic."""
        self._post(f"/topic/create?topic={quote(topic, safe='')}", topic)

    def holding(self, topic: str) -> Holding:
        """A snapshot of a log with its channels."""
        state, answer = self._log(topic)
        try:
            return Holding(state, tuple(
                Channel(**{key: one[key] for key in Channel.__annotations__})  # type: ignore[typeddict-item]
                for one in answer["channels"]))
        except (KeyError, TypeError):
            raise self._bad("/topic/log", "not the state of a log") from None


class Nodes(NamedTuple):
    """By HOST:PORT of TCP: the nsqd that answer, and the errors of the others."""

    apis: dict[str, NodeApi]
    down: dict[str, str]


@contextmanager
def found(cluster: Cluster, note: Callable[[str], None]) -> Iterator[Nodes]:
    """The nsqd of a cluster, for the block. Raises JobError if one answers wrongly, or none at all."""
    chosen = options.parse(options.LogTable, node_options(cluster), "nsqc spark")
    named = looked_up(cluster, note) if cluster.options.get("nsqlookupd") else given(cluster, chosen)
    apis = {name: NodeApi(http, chosen) for name, http in named.items()}
    down: dict[str, str] = {}

    def ask(name: str) -> str | None:
        try:
            port = apis[name].tcp_port()
        except Unreachable as error:
            if closed(name) is not None:
                return str(error)
            raise JobError(other_server(name)
                           or f"{error}: {name} has no HTTP there: give its HTTP address by --http") from None
        if port != split_address(name)[1]:
            raise BadAnswer(f"{apis[name].address} is not the HTTP address of {name}: give it by --http")
        return None

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            down = {name: why for name, why in zip(apis, pool.map(ask, apis), strict=True) if why}
        if len(down) == len(apis):
            raise JobError(f"no nsqd is reachable over HTTP: {'; '.join(down.values())}")
        yield Nodes({name: api for name, api in apis.items() if name not in down}, down)
    except LogError as error:
        raise JobError(str(error)) from None
    finally:
        for api in apis.values():
            api.close()


def node_options(cluster: Cluster) -> dict[str, str]:
    """The options of a cluster, with the short timeout of checks."""
    return cluster.options | {"timeout": str(HANDSHAKE_SECONDS)}


def given(cluster: Cluster, chosen: options.NodeOptions) -> dict[str, str]:
    """HTTP addresses by TCP addresses, from options."""
    if not cluster.http:
        return {name: beside(name, chosen.tls) for name in chosen.nsqd}
    if len(cluster.http) != len(chosen.nsqd):
        raise JobError("--http needs one address for each of --nsqd, in the same order")
    return dict(zip(chosen.nsqd, cluster.http, strict=True))


def beside(name: str, tls: bool) -> str:
    """nsqd's default HTTP, or HTTPS, address."""
    host, port = split_address(name)
    return join_address(host, port + (2 if tls else 1))


def looked_up(cluster: Cluster, note: Callable[[str], None]) -> dict[str, str]:
    """The same, as reported by nsqlookupd. Raises JobError."""
    if cluster.http:
        raise JobError("--http needs --nsqd: nsqlookupd reports the HTTP addresses")
    addresses = values.read_addresses(cluster.options["nsqlookupd"])
    addresses_by_lookup(addresses, note)      # raises with the cause
    tls = cluster.options.get("tls") == "true"
    return {join_address(str(node["broadcast_address"]), int(node["tcp_port"])):
            join_address(str(node["broadcast_address"]), int(node["http_port"]) + tls)
            for address in addresses for node in producers(address) or ()}


# ====================================================================== topics
# Checks over HTTP, before a job starts, whether topics and channels exist.

MOST_NAMES = 8          # listed in an error


def existing(cluster: Cluster, note: Callable[[str], None]) -> Topics | None:
    """The topics of a cluster; None, with a note, if they cannot be queried. Raises JobError if given HTTP addresses
    do not answer."""
    try:
        addresses = list(cluster.http) or nsqd_http.http_addresses(cluster.options)
        for address in addresses:
            nsqd_http.get(address, "/info", cluster.secret)
    except nsqd_http.NodeError as error:
        if cluster.http:
            raise JobError(f"--http {error}") from None
        note(f"cannot check whether topics exist: {error}")
        return None
    return Topics(addresses, cluster.secret)


class Topics:
    """The topics of some nsqd. addresses: HOST:PORT of HTTP."""

    def __init__(self, addresses: list[str], secret: nsqd_http.Secret = nsqd_http.NONE):
        self.addresses = addresses
        self._secret = secret

    def channels(self, topic: str) -> set[str] | None:
        """The channels of a topic; None if no nsqd has the topic. Raises NodeError."""
        names: set[str] | None = None
        for address in self.addresses:
            for stats in nsqd_http.topics(address, topic, self._secret):
                names = (names or set()) | {channel["channel_name"] for channel in stats["channels"] or ()}
        return names

    def require_topic(self, topic: str) -> set[str]:
        """The channels of a topic. Raises JobError if it does not exist."""
        channels = self.channels(topic)
        if channels is None:
            names = {stats["topic_name"] for address in self.addresses
                     for stats in nsqd_http.topics(address, secret=self._secret)}
            raise JobError(f"no topic {topic}; {choice('topics', topic, names)}; --create creates it")
        return channels

    def require_channel(self, topic: str, channel: str) -> None:
        """Raises JobError if the topic or its channel does not exist."""
        channels = self.require_topic(topic)
        if channel not in channels:
            raise JobError(f"topic {topic} has no channel {channel}; {choice('channels', channel, channels)}; --create "
                           "creates it")


def choice(kind: str, name: str, names: set[str]) -> str:
    """The existing names, the most similar ones first."""
    if not names:
        return f"there are no {kind}"
    similar = get_close_matches(name, names, MOST_NAMES, 0.5)
    shown = (similar + sorted(names - set(similar)))[:MOST_NAMES]
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(shown)}" + (
        f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else "")


# ====================================================================== logs
# Log-backed topics as input of jobs: checked before Spark starts, then read as frames between fixed offsets.
#
# Fixed, because a job reads a log more than once: to count messages, and to publish or to plot them.

# For the option pushFilters: a time range then skips messages outside it.
SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true"}
OFFSETS = 'a whole number, or JSON by node, such as {"host:4150": 23}'


class Logs(NamedTuple):
    """Log-backed topics between offsets, by topic and node; messages: their number."""

    source: dict[str, str]      # options of the data source
    starts: dict[Place, int]
    ends: dict[Place, int]
    messages: int


def source(cluster: Cluster, names: list[str]) -> dict[str, str]:
    """The options of the data source for some topics."""
    if cluster.http and "nsqlookupd" in cluster.options:
        raise typer.BadParameter("--http needs --nsqd: nsqlookupd reports the HTTP addresses")
    given = cluster.options | {"topic": ",".join(names)}
    if cluster.http:
        given["http"] = ",".join(cluster.http)
        if len(cluster.http) != len(cluster.options["nsqd"].split(",")):
            raise typer.BadParameter("--http needs one address for each of --nsqd, in the same order")
    return given


def look(cluster: Cluster, names: list[str], note: Callable[[str], None], all_nodes: str = "") -> dict[Place, State]:
    """The logs of topics on the responding nodes. all_nodes: why all of them are needed. Raises JobError if a required
    node does not answer, or a topic is missing or stored in memory."""
    with found(cluster, note) as (apis, down):
        states = {}
        for node, api in apis.items():
            for name in names:
                if (state := api.log_state(name)) is not None:
                    states[Place(name, node)] = state
        if down and all_nodes:
            raise JobError(f"{'; '.join(down.values())}: {all_nodes}")
        for why in down.values():
            note(f"{why}; continuing with the others")
        for name in names:
            if all(place.topic != name for place in states):
                known = {topic for api in apis.values() for topic in api.topics()}
                raise JobError(f"no topic {name}; {choice('topics', name, known)}")
    owners: dict[tuple[str, str], Place] = {}
    for place in sorted(states):    # the data source takes the first one, too, and refuses copies
        owner = owners.setdefault((place.topic, states[place].id), place)
        if states[place].id and owner != place:
            note(f"topic {place.topic} at {place.node} is the same log as at {owner.node}: it is read once")
            del states[place]
    return states


def require_topic(cluster: Cluster, name: str, note: Callable[[str], None]) -> None:
    """Raises JobError if no node has a topic, in any storage; ephemeral ones may come and go."""
    if is_ephemeral(name.encode()):
        return
    with found(cluster, note) as (apis, _):
        known = {topic for api in apis.values() for topic in api.topics()}
    if name not in known:
        raise JobError(f"no topic {name}; {choice('topics', name, known)}; --create creates it")


def fixed(cluster: Cluster, names: list[str], note: Callable[[str], None], first: str | None = None,
          last: str | None = None) -> Logs:
    """The current contents of logs, or the part from --from-offset to before --to-offset, which need a single topic.
    Raises JobError."""
    states = look(cluster, names, note, "all nsqd must answer, or messages would be missing")
    starts = {place: state.first for place, state in states.items()} | asked("--from-offset", first, states)
    ends = {place: state.next for place, state in states.items()} | asked("--to-offset", last, states)
    for place in starts:
        if starts[place] > ends[place]:
            raise JobError(f"--from-offset {starts[place]} is after --to-offset {ends[place]} at {place.node}")
    messages = sum(ranges.count(states[place].segments, starts[place], ends[place]) for place in states)
    return Logs(source(cluster, names), starts, ends, messages)


def asked(option: str, text: str | None, states: dict[Place, State]) -> dict[Place, int]:
    """The offsets given by an option. Raises JobError if they do not exist."""
    if text is None:
        return {}
    given = read_offsets(text)
    if isinstance(given, int):
        if len(states) > 1:
            raise JobError(f"{option} {given}: the topic is on {len(states)} nsqd, each with its own offsets: give "
                           f"them by node, {json.dumps({place.node: given for place in states})}")
        given = {place.node: given for place in states}
    by_node = {place.node: place for place in states}
    if unknown := sorted(given.keys() - by_node.keys()):
        raise JobError(f"{option}: {unknown[0]} does not have the topic; there {'is' if len(by_node) == 1 else 'are'} "
                       f"{', '.join(by_node)}")
    for node, offset in given.items():
        state = states[by_node[node]]
        if not state.first <= offset <= state.next:
            raise JobError(f"{option} {offset}: topic {by_node[node].topic} at {node} has offsets {state.first} to "
                           f"{state.next}")
    return {by_node[node]: offset for node, offset in given.items()}


def read_offsets(text: str) -> int | dict[str, int]:
    """An offset, or some by node. Raises ValueError."""
    given = read_json(text)
    for offset in given.values() if isinstance(given, dict) and given else [given]:
        if type(offset) is not int or not 0 <= offset < 2**63:
            raise ValueError(f"must be {OFFSETS}")
    return given  # type: ignore[no-any-return]


def rows(spark: SparkSession, logs: Logs, columns: str, start: int | None = None, end: int | None = None) -> DataFrame:
    """These columns (in Spark's DDL) of the messages published from start to end (microseconds since 1970): a partition
    per log, in the order of its offsets."""
    from pyspark.sql import functions as f

    given = {**logs.source, "minPartitions": "1", "startingOffsets": json.dumps(nested(logs.starts)),
             "endingOffsets": json.dumps(nested(logs.ends))}
    if start is not None or end is not None:
        given["pushFilters"] = "true"       # each query of the frame has these filters
    frame = spark.read.format("nsq").schema(columns).options(**given).load()
    if start is not None:
        frame = frame.where(f.col("timestamp") >= f.timestamp_micros(f.lit(start)))
    if end is not None:
        frame = frame.where(f.col("timestamp") < f.timestamp_micros(f.lit(end)))
    return frame
