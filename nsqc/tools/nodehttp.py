"""The HTTP APIs of nsqd and nsqlookupd, for tools: blocking calls with a timeout, over TCP, TLS or a unix socket."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from nsqc.client.http import answered_by, authorization, connection_to, https_port_of
from nsqc.client.httpaddress import http_address
from nsqc.tools.errors import EXIT_FAILED, NoNode, ToolError
from nsqc.tools.probing import probe
from nsqc.wire.answers import WANTS_TLS, Answer, Service, of_info, wrong_port
from nsqc.wire.outside import Json, JSONError, decode

if TYPE_CHECKING:
    from nsqc.wire.nsqstats import Stats
    from nsqc.wire.stats import TopicStats

ACCEPT = {"Accept": "application/vnd.nsq; version=1.0", "User-Agent": "nsqc"}
MOST_BYTES = 1 << 30        # of an answer; a larger one is invalid
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
        data = answer.read(MOST_BYTES)
        if not answer.isclosed() and answer.read(1):
            raise ValueError("the answer is too large")
        return Reply(answer.status, answer.headers, data)

    # ------------------------------------------------------------------ wrong ports

    def _wrong(self, found: Answer) -> Unreachable:
        """The error for another service."""
        hint = ""
        if found.service is Service.TLS:
            hint = "; --tls is for TLS" if self._wants is Service.NSQD_HTTP else "; give an https URL for TLS"
        return Unreachable(f"{self.address}: {wrong_port(found, self._wants)}{hint}")

    def _explained(self, text: str, error: Exception) -> Unreachable:
        """The error for a failed exchange. The first time, probes the TCP address that this address was derived from:
        it may be another service's, or the HTTP address may be elsewhere."""
        tcp, self._tcp = self._tcp, ""
        found = probe(tcp, self._timeout) if tcp else None
        if found is not None and found.service is not Service.NSQD_TCP:
            return Unreachable(f"{tcp}: {wrong_port(found, Service.NSQD_TCP)}")
        if found is not None:
            text += f"; {tcp} is nsqd's TCP port: give its HTTP address by --http"
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
