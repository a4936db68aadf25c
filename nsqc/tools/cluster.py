"""The nodes selected by a command line: their TCP and HTTP addresses, and the security to use."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from nsqc.client.address import checked_address, is_path, join_address, split_address
from nsqc.client.errors import BadAddress
from nsqc.client.httpaddress import http_address
from nsqc.client.options import ConnectionOptions
from nsqc.tools.declare import Values
from nsqc.tools.errors import NoName, NoNode, UsageError
from nsqc.tools.security import Security
from nsqc.wire.answers import DEFAULT_PORTS, Service
from nsqc.wire.nodehosts import NodeHosts
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.nodehttp import NodeHttp
    from nsqc.wire.stats import TopicStats

T = TypeVar("T")

LONGEST_HOST = 255      # of a name in DNS


class Node(NamedTuple):
    """An nsqd by its TCP and HTTP addresses, in the form for messages: without logins."""

    tcp: str
    http: str


class Cluster:
    """From the options of family.HTTP_NODES or family.TCP_NODES. nsqd: TCP addresses as given, or the local daemon's;
    nsqlookupd: HTTP addresses or URLs; one of the two is empty. Raises UsageError."""

    def __init__(self, values: Values, tool: str = "nsqc"):
        self._values, self._tool = values, tool
        self.timeout = values.seconds("timeout")
        self.nsqd = self._addresses("nsqd", checked_address)
        self.nsqlookupd = self._addresses("nsqlookupd", http_address)
        http = self._addresses("http", lambda text: http_address(text, DEFAULT_PORTS[Service.NSQD_HTTP]))
        if self.nsqd and self.nsqlookupd:
            raise UsageError("give either --nsqd or --nsqlookupd", tool)
        if http and len(http) != len(self.nsqd):
            raise UsageError("--http needs one address for each --nsqd", tool)
        self.poll_interval = 60.0       # seconds between two lookups, for long-running tools
        self.lookup_timeout = self.timeout
        self.extra: ConnectionOptions = {}      # overrides for these
        has_urls = any(http_address(text).tls for text in (*self.nsqlookupd, *http))
        self._security = Security(values, tool, has_urls=has_urls)
        try:
            self._hosts = NodeHosts(values.texts("node-addresses"))
        except ValueError as error:
            raise UsageError(f"--node-addresses: {error}", tool) from None
        self._authorised: set[str] = set()      # HTTP addresses for which nsqlookupd vouches
        shown = [http_address(text).text for text in http]
        self._urls = dict(zip(shown, http, strict=True))        # with logins
        self._http = dict(zip(self.nsqd, shown, strict=True)) if http else {}
        self.is_local = not self.nsqd and not self.nsqlookupd
        if self.is_local:
            from nsqc.tools.localnode import local_node

            local = local_node(values.text("config"))
            self.nsqd = [local.tcp]
            self._http = {local.tcp: (local.https if values.flag("tls") else "") or local.http}

    def _addresses(self, name: str, check: Callable[[str], object]) -> list[str]:
        found = [address for text in self._values.texts(name) for address in text.split(",")]
        try:
            for address in found:
                check(address)
        except BadAddress as error:
            raise UsageError(f"--{name}: {error}", self._tool) from None
        return found

    # ------------------------------------------------------------------ security

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for TLS and HTTPS; None without --tls. Raises UsageError."""
        return self._security.tls

    def connection_options(self) -> ConnectionOptions:
        """The options for nsqc.client. Raises UsageError."""
        limit: ConnectionOptions = {}
        if self._hosts:
            named = [split_address(address)[0] for address in self.nsqd if not is_path(address)]
            limit = {"node_addresses": ",".join([*self._values.texts("node-addresses"), *named])}
        return {**self._security.connection_options(), **limit, **self.extra}

    def _withheld(self, node: Node) -> str:
        """Why a node does not get the secret: anyone who reaches nsqlookupd may announce an address. Empty: it does."""
        host = http_address(node.http).host
        if not self.nsqlookupd or node.http in self._authorised or self._hosts.cover(host):
            return ""
        return f"--auth-secret is not sent to a node that only nsqlookupd names: permit it by --node-addresses={host}"

    # ------------------------------------------------------------------ HTTP

    def http(self, node: Node, wait: float = 0.0) -> NodeHttp:
        """The HTTP API of a node; wait: seconds added to the timeout, for long polls."""
        from nsqc.tools.nodehttp import NodeHttp  # importing http.client takes a third of a start

        address = self._urls.get(node.http, node.http)
        is_guess = node.tcp in self.nsqd and node.tcp not in self._http
        tls = self._security.context if http_address(address).tls else self.tls
        secret = self._security.secret()
        withheld = self._withheld(node) if secret else ""
        return NodeHttp(address, self.timeout + wait, tls, tcp=node.tcp if is_guess else "",
                        secret=None if withheld else secret, withheld=withheld)

    @property
    def lookup_tls(self) -> ssl.SSLContext | None:
        """The context for nsqlookupd with https URLs; NSQ's nsqlookupd has no TLS, so HOST:PORT means HTTP."""
        return self._security.context if any(http_address(text).tls for text in self.nsqlookupd) else None

    def lookup(self, path: str, **arguments: str) -> list[Json]:
        """The answer of each responding nsqlookupd; a 404 counts as an answer of None. Raises NoNode if none
        answers."""
        from nsqc.tools.nodehttp import BadStatus, NodeHttp, Unreachable

        answers: list[Json] = []
        failure = ""
        for address in self.nsqlookupd:
            tls = self.lookup_tls if http_address(address).tls else None
            api = NodeHttp(address, self.timeout, tls, Service.LOOKUPD_HTTP, secret=self._security.secret())
            try:
                answers.append(api.get(path, arguments))
            except BadStatus as error:
                if error.status != 404:
                    failure = str(error)
                else:
                    answers.append(None)
            except Unreachable as error:
                failure = str(error)
            finally:
                api.close()
        if not answers:
            raise NoNode(f"no nsqlookupd answers: {failure}")
        return answers

    def nodes(self, topic: str = "") -> list[Node]:
        """All nsqd, or with a topic those that have it. nsqd given on the command line are returned unchanged.
        Raises NoNode."""
        return list(self.announced(topic))

    def announced(self, topic: str = "") -> dict[Node, dict[str, Json]]:
        """The same nodes, each with its entry in nsqlookupd's answer. Raises NoNode."""
        if not self.nsqlookupd:
            return {Node(address, self.http_address(address)): {} for address in self.nsqd}
        answers = self.lookup("/lookup", topic=topic) if topic else self.lookup("/nodes")
        found: dict[str, tuple[Node, dict[str, Json]]] = {}
        for answer in answers:
            producers = answer.get("producers") if isinstance(answer, dict) else None
            if not isinstance(producers, list | None):
                raise NoNode("nsqlookupd's answer has no list of nodes")
            for producer in producers or ():
                node = self._announced(producer)
                found.setdefault(node.tcp, (node, producer))
                if producer.get("authorised") is True:
                    self._authorised.add(node.http)
        return dict(found.values())

    def _announced(self, producer: Json) -> Node:
        try:
            host, tcp, http = producer["broadcast_address"], int(producer["tcp_port"]), int(producer["http_port"])
            # An announcement has no port for HTTPS: by default it is the next one.
            node = Node(join_address(host, tcp), join_address(host, http + (1 if self.tls is not None else 0)))
            for address in node:
                split_address(address)
        except (KeyError, TypeError, ValueError, OverflowError, BadAddress):
            raise NoNode("nsqlookupd lists a node without usable address and ports") from None
        if len(host) > LONGEST_HOST:
            raise NoNode(f"nsqlookupd lists a node with an address of {len(host)} characters")
        return node

    def http_address(self, tcp: str) -> str:
        """The HTTP address of an nsqd by its TCP address: as given, or the next port, or for HTTPS the one after."""
        if tcp in self._http:
            return self._http[tcp]
        if is_path(tcp):
            raise UsageError(f"--nsqd {tcp}: give the HTTP socket by --http", self._tool)
        host, port = split_address(tcp)
        return join_address(host, port + (2 if self.tls is not None else 1))

    def each(self, nodes: Iterable[Node], call: Callable[[NodeHttp, Node], T],
             warn: Callable[[str], None]) -> dict[Node, T]:
        """The result of a call by node; nodes that do not answer are reported by warn. Raises NoNode if none answers,
        and the call's other exceptions."""
        from nsqc.tools.nodehttp import Unreachable

        results: dict[Node, T] = {}
        failures: list[str] = []
        for node in nodes:
            api = self.http(node)
            try:
                results[node] = call(api, node)
            except Unreachable as error:
                failures.append(str(error))
            finally:
                api.close()
        if not results:
            raise NoNode(f"no nsqd answers: {'; '.join(failures) or 'none is known'}")
        for failure in failures:
            warn(failure)
        return results

    # ------------------------------------------------------------------ names

    def topic_names(self) -> list[str]:
        """All topics of all nodes that answer, sorted. Raises NoNode."""
        if self.nsqlookupd:
            answers = self.lookup("/topics")
            return sorted({name for answer in answers for name in names_in(answer, "topics")})
        from nsqc.tools.nodehttp import topics_at

        found = self.each(self.nodes(), lambda api, _: topics_at(api), lambda _: None)
        return sorted({topic.topic_name for topics in found.values() for topic in topics})

    def channel_names(self, topic: str) -> list[str]:
        """All channels of a topic, sorted; none if the topic does not exist. Raises NoNode."""
        if self.nsqlookupd:
            answers = self.lookup("/channels", topic=topic)
            return sorted({name for answer in answers for name in names_in(answer, "channels")})
        found = self.topic_stats(topic)
        return sorted({channel.channel_name for stats in found.values() for channel in stats.channels or ()})

    def topic_stats(self, topic: str) -> dict[Node, TopicStats]:
        """A topic's part of /stats, by the nodes that have it. Raises NoNode."""
        from nsqc.tools.nodehttp import topics_at

        found = self.each(self.nodes(topic), lambda api, _: topics_at(api, topic), lambda _: None)
        return {node: topics[0] for node, topics in found.items() if topics}

    def require_topic(self, topic: str) -> None:
        """Raises NoName with the nearest name if no node that answers has the topic, NoNode."""
        if self.nsqlookupd:
            if any(answer is not None for answer in self.lookup("/lookup", topic=topic)):
                return
        elif self.topic_stats(topic):
            return
        raise NoName("topic", topic, self.topic_names())

    def require_channel(self, topic: str, channel: str) -> None:
        """Raises NoName with the nearest name if no node that answers has the channel, or the topic; NoNode."""
        names = self.channel_names(topic)
        if channel not in names:
            self.require_topic(topic)
            raise NoName("channel", channel, names, f" in topic {topic!r}")


def names_in(answer: Json, key: str) -> list[str]:
    """The names in an answer of nsqlookupd; invalid names are omitted."""
    names = answer.get(key) if isinstance(answer, dict) else None
    from nsqc.wire.names import is_valid_name  # here: compiled, and few tools list names

    return [name for name in names if isinstance(name, str) and is_valid_name(name.encode("utf-8", "replace"))
            ] if isinstance(names, list) else []
