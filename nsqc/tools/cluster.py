"""The nodes selected by a command line: their TCP and HTTP addresses, and the security to use."""

from __future__ import annotations

import http.client
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from nsqc.client.address import checked_address, http_address, is_path, join_address, split_address
from nsqc.client.connection import Connection
from nsqc.client.core import dial
from nsqc.client.errors import BadAddress, ClientError, Ended, WrongPort, not_nsqd
from nsqc.client.http import answered_by, authorization, connection_to, https_port_of
from nsqc.client.options import ConnectionOptions, Options
from nsqc.options.option import Kind
from nsqc.tools.declare import (
    EXIT_FAILED,
    HTTP_NODES,
    NoName,
    NoNode,
    Security,
    Tool,
    ToolError,
    UsageError,
    Values,
    parse,
)
from nsqc.wire.nodehosts import NodeHosts
from nsqc.wire.outside import (
    DEFAULT_PORTS,
    MOST_BYTES,
    PROBE,
    WANTS_TLS,
    Answer,
    Json,
    JSONError,
    Service,
    decode,
    of_info,
    probed,
    wrong_port,
)
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.wire.stats import Stats, TopicStats


# ====================================================================== the local node
# The addresses of this machine's daemon, from its environment variables and its config file.

VARIABLE = "NSQC_CONFIG"
USUAL_FILE = "/etc/nsqc/nsqc.cfg"
# The daemon's options that matter here, with its defaults; they may also come from the environment
# (nsqc.options.flags).
DEFAULTS = {"tcp_address": "0.0.0.0:4150", "http_address": "0.0.0.0:4151", "https_address": "0.0.0.0:4152",
            "tls_cert": ""}
WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Local(NamedTuple):
    """TCP, HTTP and HTTPS address, HOST:PORT or a path; https is empty if the daemon has no certificate."""

    tcp: str
    http: str
    https: str


def local_node(path: str) -> Local:
    """Reads the given or the default config file. Raises UsageError if a given file cannot be used."""
    chosen = path or os.environ.get(VARIABLE) or (USUAL_FILE if os.access(USUAL_FILE, os.R_OK) else "")
    values: dict[str, object] = {**DEFAULTS}
    if chosen:
        # Imported here: not needed with --nsqd or without a file.
        from nsqc.options.declared import OptionError
        from nsqc.options.file import read_config

        try:
            values |= read_config(chosen)[0]
        except OptionError as error:
            raise UsageError(str(error)) from None
    if not path:
        values |= {name: os.environ[variable] for name in DEFAULTS
                   if (variable := f"NSQC_{name.upper()}") in os.environ}
    tcp, http, https = (reachable(str(values[name])) for name in ("tcp_address", "http_address", "https_address"))
    try:
        checked_address(tcp)
    except BadAddress as error:
        if chosen:
            raise UsageError(f"config file {chosen}: {error}") from None
    return Local(tcp, http, https if values["tls_cert"] else "")


def reachable(address: str) -> str:
    """Converts a listening address to one to connect to."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return address
    return f"{WILDCARDS.get(host.strip('[]'), host)}:{port}"


# ====================================================================== probing
# Identifies the service at an address whose answer is unexpected.

LONGEST_S = 2.0     # explaining an error must not delay it much
READ_BYTES = 4096


def connect(address: str, options: Options) -> Connection:
    """Connects to an nsqd. Raises ClientError, whose text names the service if it is another one."""
    try:
        return Connection.with_options(address, options)
    except (Ended, WrongPort):
        found = probe(address, options.timeout)
        if found is None or found.service is Service.NSQD_TCP:
            raise
        raise not_nsqd(address, found) from None


def probe(address: str, timeout: float) -> Answer | None:
    """The service at HOST:PORT, or at the path of a unix socket; None: unknown."""
    timeout = min(timeout, LONGEST_S)
    try:
        data = asked(address, timeout)
        if data:
            return probed(data)
        # TLS servers may close a connection silently if it does not begin with a handshake.
        return Answer(Service.TLS) if speaks_tls(address, timeout) else None
    except (OSError, ValueError):
        return None


def asked(address: str, timeout: float) -> bytes:
    """The answer to PROBE; empty if the connection ends without one. Raises OSError (TimeoutError if no answer arrives
    in time), BadAddress."""
    deadline = time.monotonic() + timeout
    received = bytearray()
    with dial(address, timeout) as sock:
        sock.sendall(PROBE)
        while len(received) < MOST_BYTES:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = sock.recv(READ_BYTES)
            except ConnectionResetError:
                break
            except TimeoutError:
                if not received:
                    raise
                break
            if not data:
                break
            received += data
    return bytes(received)


def speaks_tls(address: str, timeout: float) -> bool:
    """Whether a TLS server answers, with any certificate. Raises OSError, BadAddress."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with dial(address, timeout) as sock:
        try:
            with context.wrap_socket(sock):
                return True
        except ssl.SSLError as error:
            # An alert, such as a demand for a certificate, is TLS, too.
            return "alert" in str(error.reason).lower()
        except TimeoutError:
            return False


# ====================================================================== HTTP calls
# The HTTP APIs of nsqd and nsqlookupd, for tools: blocking calls with a timeout, over TCP, TLS or a unix socket.

ACCEPT = {"Accept": "application/vnd.nsq; version=1.0", "User-Agent": "nsqc"}
MOST_ANSWER_BYTES = 1 << 30        # of an answer; a larger one is invalid
NOT_FOUND = "NOT_FOUND"     # an unknown path; topics and channels have other words
NOT_HERE = (400, 404, 405)  # answers of other services to our calls
HTTPS_PORT = 4152


class Unreachable(NoNode):
    """This node does not answer, or not in HTTP; another may."""


class BadStatus(ToolError):
    """The node refuses. status: of HTTP; message: the node's error word, such as TOPIC_NOT_FOUND; headers, body: of
    its answer; hint: the remedy."""

    def __init__(self, address: str, answer: Reply, hint: str = ""):
        self.status, self.message, self.reply = answer.status, refusal(answer.body), answer
        super().__init__(f"{address}: {self.status} {self.message}".rstrip() + (f"; {hint}" if hint else ""),
                         EXIT_FAILED)


class Reply(NamedTuple):
    """An answer of any status."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class NodeHttp:
    """One node. address: HOST:PORT, a URL or the path of a unix socket; timeout in seconds; tls: HTTPS, and the context
    for URLs that ask for it. wants: the service required there. tcp: the TCP address that the address was derived from,
    for explaining errors. secret: sent with each call, unless the address has a login; never in clear text to a node
    that has HTTPS. withheld: why there is none. Connections are kept between calls; not thread-safe. Raises
    BadAddress."""

    def __init__(self, address: str, timeout: float, tls: ssl.SSLContext | None = None,
                 wants: Service = Service.NSQD_HTTP, tcp: str = "", secret: bytes | None = None, withheld: str = ""):
        self._where = http_address(address)
        self.address = self._where.text
        self._timeout, self._wants, self._tcp, self._withheld = timeout, wants, tcp, withheld
        self._guess = f"; this is a guess from {tcp}: give the HTTP address by --http" if tcp else ""
        self._speaks_tls = self._where.tls or (self._where.tls is None and tls is not None)
        shown = secret.decode("latin-1") if secret else None
        self._headers = ACCEPT | authorization(shown) | self._where.headers
        self._is_clear = "Authorization" in self._headers and not self._speaks_tls and not self._where.socket
        self._connection = connection_to(self._where, timeout, tls)

    def close(self) -> None:
        """Closes the connection; the next call reopens it."""
        self._connection.close()

    def get(self, path: str, arguments: Mapping[str, object] | None = None) -> Json:
        """The JSON answer of a GET. Raises Unreachable, BadStatus."""
        return self.json("GET", path, arguments)

    def json(self, method: str, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> Json:
        """The JSON answer of a call; None if it has no body. Raises Unreachable, BadStatus."""
        answer = self.call(method, path, arguments, body)
        if not answer:
            return None
        try:
            value = decode(answer)
        except JSONError:
            raise Unreachable(f"{self.address}: {path} answers {answer[:40]!r}: not JSON") from None
        # An nsqd before 1.0 wraps its answers in "data".
        wrapped = isinstance(value, dict) and value.keys() == {"status_code", "status_txt", "data"}
        return value["data"] if wrapped else value

    def stats(self, **arguments: str) -> Stats:
        """The answer of /stats; without clients unless these are asked for. Raises Unreachable, also if another service
        answers, BadStatus."""
        answer = self.call("GET", "/stats", {"format": "json", "include_clients": "false", "include_mem": "false",
                                             **arguments})
        from nsqc.tools.nsqdstats import stats_in

        stats = stats_in(answer)
        if stats is None:
            raise Unreachable(f"{self.address}: is not an nsqd: it has no statistics")
        return stats

    def post(self, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
        """The body of the answer to a POST. Raises Unreachable, BadStatus."""
        return self.call("POST", path, arguments, body)

    def call(self, method: str, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
        """The body of an answer with status 200. Raises Unreachable, BadStatus."""
        return self.reply(method, path, arguments, body).body

    def reply(self, method: str, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"",
              accept: str = "") -> Reply:
        """An answer with status 200; accept: its media type, if there is a choice. Raises Unreachable, BadStatus."""
        target = path + (f"?{urlencode(arguments, quote_via=quote)}" if arguments else "")
        answer = self.answer(method, target, body, accept)
        if answer.status == 200:
            return answer
        refused = BadStatus(self.address, answer, self._withheld if answer.status == 401 else "")
        if answer.status in NOT_HERE and (refused.message == NOT_FOUND or not is_of_nsq(answer)):
            # nsqd and nsqlookupd lack each other's paths, and other servers all of them.
            self.check()
        raise refused

    def check(self) -> None:
        """Raises Unreachable if another service answers."""
        answer = self.answer("GET", "/info", b"")
        if answer.status == 200:
            found = of_info(answer.body)
        elif answer.status in NOT_HERE:
            wants_tls = any(text in answer.body for text in WANTS_TLS)
            found = Answer(Service.TLS if wants_tls else Service.FOREIGN_HTTP)
        else:
            return      # the answer of a proxy, for example, proves nothing
        if found.service is not self._wants:
            raise self._wrong(found)

    def answer(self, method: str, target: str, body: bytes = b"", accept: str = "") -> Reply:
        """An answer of any status from any server. Raises Unreachable."""
        is_lookup = self._wants is Service.LOOKUPD_HTTP
        target = self._where.beside(target) if is_lookup else self._where.below(target)
        try:
            return self._exchange(method, target, body, self._headers | ({"Accept": accept} if accept else {}))
        except TimeoutError as error:
            self.close()
            raise self._explained(f"{self.address}: no answer in time", error) from None
        except http.client.HTTPException as error:
            self.close()
            found = answered_by(error)
            if found is not None and not self._where.socket:
                raise self._wrong(found) from None
            closed = isinstance(error, http.client.RemoteDisconnected)
            raise self._explained(f"{self.address}: {error if closed else 'not an HTTP answer'}", error) from None
        except (OSError, ValueError) as error:
            self.close()
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._explained(f"{self.address}: {text if isinstance(error, OSError) else 'not an HTTP answer'}",
                                  error) from None

    def _exchange(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Reply:
        fresh = self._connection.sock is None
        if fresh and self._is_clear and (port := https_port_of(self._connection, self._where.below("/info"))):
            self.close()
            raise Unreachable(f"{self.address}: has HTTPS on port {port}, so the secret is not sent in clear text: "
                              "--tls uses it")
        try:
            self._connection.request(method, target, body or None, headers)
            answer = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._connection.close()
            # The node has closed an idle connection: nothing was answered, and only reads are safe to repeat.
            if fresh or method != "GET":
                raise
            self._connection.request(method, target, body or None, headers)
            answer = self._connection.getresponse()
        data = answer.read(MOST_ANSWER_BYTES)
        if not answer.isclosed() and answer.read(1):
            raise ValueError("the answer is too large")
        return Reply(answer.status, answer.headers, data)

    # ------------------------------------------------------------------ wrong ports

    def _wrong(self, found: Answer) -> Unreachable:
        """The error for another service."""
        hint = ""
        if found.service is Service.TLS:
            hint = "; --tls is for TLS" if self._wants is Service.NSQD_HTTP else "; give an https URL for TLS"
        return Unreachable(f"{self.address}: {wrong_port(found, self._wants)}{hint}{self._guess}")

    def _explained(self, text: str, error: Exception) -> Unreachable:
        """The error for a failed exchange. The first time, probes the TCP address that this address was derived from:
        it may be another service's, or the HTTP address may be elsewhere."""
        tcp, self._tcp = self._tcp, ""
        found = probe(tcp, self._timeout) if tcp else None
        if found is not None and found.service is not Service.NSQD_TCP:
            return Unreachable(f"{tcp}: {wrong_port(found, Service.NSQD_TCP)}")
        if found is not None:
            text += f"; {tcp} is nsqd's TCP port: give its HTTP address by --http"
        else:
            text += self._guess
        return self._explained_by_answer(error) or Unreachable(text)

    def _explained_by_answer(self, error: Exception) -> Unreachable | None:
        """The error for a server that closes the connection without an answer, or does not speak TLS."""
        if self._where.socket or not isinstance(error, ConnectionResetError | ssl.SSLError) or isinstance(
                error, ssl.SSLCertVerificationError):
            return None
        found = probe(self._where.authority, self._timeout)
        if found is None or (found.service is Service.TLS if self._speaks_tls else found.service is self._wants):
            return None
        if not self._speaks_tls:
            return self._wrong(found)
        return Unreachable(f"{self.address}: this is {found.service.value}, which does not speak TLS" + (
            f"; nsqd's HTTPS port is another one ({HTTPS_PORT} by default)"
            if found.service in (Service.NSQD_HTTP, Service.NSQD_TCP) else ""))


def topics_at(api: NodeHttp, topic: str = "") -> list[TopicStats]:
    """The topics of a node, or only this one. Raises Unreachable, BadStatus."""
    return (api.stats(topic=topic) if topic else api.stats()).topics or []


def is_of_nsq(answer: Reply) -> bool:
    """Whether an error answer has the form of nsqd and nsqlookupd."""
    try:
        value = decode(answer.body)
    except JSONError:
        return False
    return isinstance(value, dict) and bool({"message", "status_txt"} & value.keys())


def refusal(answer: bytes) -> str:
    """A node's error text: {"message": ...}, or the text itself."""
    try:
        value = decode(answer)
    except JSONError:
        value = None
    message = value.get("message") if isinstance(value, dict) else value
    # Other values are shown as text only: str() of a deeply nested one may exhaust the stack.
    return message if isinstance(message, str) else answer[:200].decode(errors="replace").strip()


# ====================================================================== cluster

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
        # Is told of an nsqlookupd that does not answer although others do: nodes may be missing.
        self.skipped: Callable[[str], None] = lambda _: None
        self._skipped: set[str] = set()
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

    def secret(self) -> bytes | None:
        """The token for nodes and nsqlookupd. Raises UsageError."""
        return self._security.secret()

    def _withheld(self, node: Node) -> str:
        """Why a node does not get the secret: anyone who reaches nsqlookupd may announce an address. Empty: it does."""
        host = http_address(node.http).host
        if not self.nsqlookupd or node.http in self._authorised or self._hosts.cover(host):
            return ""
        return f"--auth-secret is not sent to a node that only nsqlookupd names: permit it by --node-addresses={host}"

    # ------------------------------------------------------------------ HTTP

    def http(self, node: Node, wait: float = 0.0) -> NodeHttp:
        """The HTTP API of a node; wait: seconds added to the timeout, for long polls."""

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
        if failure and failure not in self._skipped:
            self._skipped.add(failure)
            self.skipped(f"an nsqlookupd does not answer, so nodes may be missing: {failure}")
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
    from nsqc.wire.parser import is_valid_name  # here: compiled, and few tools list names

    return [name for name in names if isinstance(name, str) and is_valid_name(name.encode("utf-8", "replace"))
            ] if isinstance(names, list) else []


# ====================================================================== completing
# Names of topics and channels for shell completion, queried from the nodes selected by the line so far.

SECONDS = 1.0       # short, since a user is waiting
SELECTING = Tool((), "", lambda values: 0, HTTP_NODES)


def names(kind: Kind, texts: Mapping[str, Sequence[str]], topics: Sequence[str]) -> list[str]:
    """texts: those of the options so far; topics: the first is the one whose channels are meant. Reports no errors:
    they would appear in the middle of the user's typing."""
    try:
        cluster = Cluster(parse(SELECTING, {option.name: texts.get(option.name, ()) for option in HTTP_NODES}, ()))
        cluster.timeout = SECONDS
        found = cluster.topic_names() if kind is Kind.TOPIC else cluster.channel_names(topics[0])
        # bash expands its words, including $(...), so only valid names may pass.
        return [name for name in found if is_valid_name(name.encode(errors="replace"))]
    except (ToolError, ClientError, OSError, ValueError, KeyError, TypeError, IndexError):
        return []
