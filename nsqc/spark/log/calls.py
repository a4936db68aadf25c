"""Calls of nsqd's HTTP API over one persistent connection. Knows no Spark."""

from __future__ import annotations

import http.client
import ssl
from typing import Any

from nsqc.client.address import split_address
from nsqc.client.http import answered_by, authorization, https_port_of
from nsqc.client.tls import tls
from nsqc.client.trouble import reason_of_tls
from nsqc.spark.log.errors import BadAnswer, LogError, NoLog, NoTopic, Unreachable
from nsqc.spark.mistakes import in_options, right_port, secret_hint
from nsqc.spark.options import NodeOptions
from nsqc.store.log.block import MEDIA_TYPE
from nsqc.wire.answers import Service
from nsqc.wire.outside import JSONError, decode

# Limit for answers that are not records.
MOST_BYTES = 64 << 20
SHOWN_BYTES = 200


class Calls:
    """One node by the HOST:PORT of its HTTP API, or of HTTPS with tls=true. Methods for subclasses have one underscore.

    Methods raise Unreachable, BadAnswer and, if a topic is given, NoTopic and NoLog. Not thread-safe.
    """

    def __init__(self, address: str, options: NodeOptions) -> None:
        self.address = address
        self._host, self._port = split_address(address)
        self._options = options
        self._connection: http.client.HTTPConnection | None = None
        self._tls: ssl.SSLContext | None = None
        self._path = ""                                 # of the last call

    def close(self) -> None:
        """Closes the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ answers

    # Any: JSON
    def _json(self, path: str, topic: str) -> dict[str, Any]:
        answer = self._open(path)
        if answer.status != 200:
            self._refused(answer, topic)
        try:
            value = decode(self._body(answer))
        except JSONError:
            value = None
        if not isinstance(value, dict):
            raise self._bad(path.partition("?")[0], "no JSON object")
        return value

    def _refused(self, answer: http.client.HTTPResponse, topic: str) -> None:
        """Raises for an answer other than 200."""
        text = self._message(answer)
        if answer.status == 404 and text == "TOPIC_NOT_FOUND":
            raise NoTopic(f"{self.address} has no topic {topic}")
        if text.startswith("NO_LOG"):
            raise NoLog(f"{self.address}: topic {text.partition(': ')[2] or topic}")
        if answer.status in (401, 403):
            hint = (": give tls=true" if text == "TLS_REQUIRED" else
                    f": {secret_hint(self._options)}" if text.startswith(("UNAUTHORIZED", "FORBIDDEN")) else "")
            raise LogError(f"nsq: {self.address}: {text[:SHOWN_BYTES]}{hint}")
        if answer.status == 404:
            raise BadAnswer(f"{self.address} has no {self._path}: it is not an nsqc with log-backed topics")
        kind = Unreachable if answer.status in (429, 502, 503, 504) else BadAnswer
        raise kind(f"{self.address}: {self._path}: status {answer.status} {text[:SHOWN_BYTES]}")

    def _message(self, answer: http.client.HTTPResponse) -> str:
        body = self._body(answer)
        try:
            message = decode(body)["message"]
        except (JSONError, KeyError, TypeError):
            message = None
        if not isinstance(message, str):
            return repr(body[:SHOWN_BYTES].decode("utf-8", "replace"))
        return message

    def _bad(self, path: str, what: str) -> BadAnswer:
        self.close()
        return BadAnswer(f"{self.address}: {path}: {what}")

    # ------------------------------------------------------------------ the connection

    def _post(self, path: str, topic: str) -> None:
        """A call that changes something, sent once: on a new connection, because an idle one may have been closed."""
        self.close()
        try:
            self._send(path, "POST")
            answer = self._answer()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None
        if answer.status != 200:
            self._refused(answer, topic)
        self._body(answer)

    def _open(self, path: str) -> http.client.HTTPResponse:
        """The head of an answer. An idle connection may have been closed meanwhile: then opens a new one."""
        kept = self._connection is not None
        try:
            try:
                return self._ask(path)
            except (ConnectionError, http.client.BadStatusLine):
                self.close()
                if not kept:
                    raise
                return self._ask(path)
        except OSError as error:        # first: an answer that never came is both
            raise self._lost_connection(error) from None
        except http.client.HTTPException as error:
            raise self._not_http(error) from None

    def _not_http(self, error: http.client.HTTPException) -> LogError:
        """The error for an answer in another protocol."""
        found = answered_by(error)
        if found is None:
            return self._bad(self._path, f"not HTTP: {error!r}")
        self.close()
        if found.service is Service.TLS:
            return LogError(f"nsq: {self.address} speaks TLS: give tls=true")
        return LogError(f"nsq: {right_port(self.address, found, Service.NSQD_HTTP)}; option http has HTTP addresses")

    def _ask(self, path: str) -> http.client.HTTPResponse:
        self._send(path)
        return self._answer()

    def _send(self, path: str, method: str = "GET") -> None:
        self._path = path.partition("?")[0]
        connection, secret = self._connection, self._options.http_secret(self.address)
        if connection is None:
            timeout = self._options.timeout
            if self._options.tls and self._tls is None:
                self._tls = _context(self._options)
            connection = (http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
                          if self._options.tls else
                          http.client.HTTPConnection(self._host, self._port, timeout=timeout))
            self._connection = connection
            if secret and not self._options.tls and (port := https_port_of(connection, "/info")):
                self.close()
                raise LogError(f"nsq: {self.address} has HTTPS on port {port}, so authSecret is not sent in clear "
                               "text: give tls=true")
        try:
            connection.request(method, path, headers={"Accept": f"{MEDIA_TYPE}, application/json",
                                                       **authorization(secret)})
        except UnicodeError:
            raise OSError(f"{self._host!r} is not a host name") from None

    def _answer(self) -> http.client.HTTPResponse:
        if self._connection is None:
            raise ConnectionResetError("the connection is closed")
        return self._connection.getresponse()

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            body = answer.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None
        if answer.length and len(body) < MOST_BYTES:     # read() with a limit accepts a premature end
            raise self._lost_connection(EOFError(f"{len(body)} of {len(body) + answer.length} bytes"))
        if not answer.isclosed():
            self.close()
        return body

    def _lost_connection(self, error: Exception) -> LogError:
        self.close()
        if isinstance(error, ssl.SSLError) and (why := reason_of_tls(error, self._tls)) != error.strerror:
            return LogError(f"nsq: {self.address}: {in_options(why)}"
                            + (": omit tls=true, or give HTTPS addresses by option http" * ("speak TLS" in why)))
        text = str(getattr(error, "strerror", None) or error) or type(error).__name__
        return Unreachable(f"{self.address}: {text}")


def _context(options: NodeOptions) -> ssl.SSLContext:
    """Raises LogError: retrying does not help."""
    try:
        return tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
    except OSError as error:
        given = ", ".join(f"{name}={path}" for name, path in (
            ("tlsCaFile", options.tlsCaFile), ("tlsCertFile", options.tlsCertFile), ("tlsKeyFile", options.tlsKeyFile))
            if path)
        raise LogError(f"nsq: {given}: {error.strerror or error}") from None
