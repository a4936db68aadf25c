"""A cluster's nsqd over HTTP: queries of jobs about log-backed topics, before Spark starts or instead of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypedDict
from urllib.parse import quote

from nsqc.client.address import join_address, split_address
from nsqc.spark import options, values
from nsqc.spark.jobs import handshake
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.running import JobError
from nsqc.spark.log.api import LogApi, State
from nsqc.spark.log.errors import BadAnswer, LogError, NoTopic, Unreachable

AT_ONCE = 16        # nodes queried concurrently


class Rule(NamedTuple):
    """Whether a topic is log-backed, and whether finished messages are retained for a time."""

    log: bool
    stays: bool


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
            return Rule(False, False)
        if answer.status != 200:
            self._refused(answer, topic)
        self._body(answer)
        rule = self._json(path, topic)
        return Rule(rule.get("storage") == "log", rule.get("retain_time") != "0s")

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
            if handshake.closed(name) is not None:
                return str(error)
            raise JobError(handshake.other_server(name)
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
    return cluster.options | {"timeout": str(handshake.SECONDS)}


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
    handshake.addresses_by_lookup(addresses, note)      # raises with the cause
    tls = cluster.options.get("tls") == "true"
    return {join_address(str(node["broadcast_address"]), int(node["tcp_port"])):
            join_address(str(node["broadcast_address"]), int(node["http_port"]) + tls)
            for address in addresses for node in handshake.producers(address) or ()}
