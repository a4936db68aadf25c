"""The meaning of bytes in HTTP/1 by h11, a strict parser that shares nothing with nsqc's."""

from typing import NamedTuple

import h11

# h11's errors for trailer fields that would describe the body in a head. Here, such fields have no meaning.
TRAILERS = ("bad Content-Length", "conflicting Content-Length", "multiple Transfer-Encoding", "Only Transfer-Encoding")


class Unknown(Exception):
    """h11 refuses a trailer for its content."""


class Seen(NamedTuple):
    """A request, as a server sees it."""

    method: bytes
    target: bytes
    body: bytes


class Meaning(NamedTuple):
    """The complete requests in some bytes, and whether their server must close after them."""

    requests: list[Seen]
    closes: bool


def meaning(data: bytes) -> Meaning:
    """By h11 alone."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24)
    connection.receive_data(data)
    requests: list[Seen] = []
    while True:
        try:
            request = one_request(connection)
        except h11.RemoteProtocolError:
            return Meaning(requests, True)
        if request is None:
            return Meaning(requests, False)
        requests.append(request)
        if connection.our_state is h11.MUST_CLOSE:
            return Meaning(requests, True)
        connection.start_next_cycle()


def lenient_meaning(data: bytes) -> Meaning:
    """By h11, plus the three things that nsqc and nsqd accept and h11 does not: a target with bytes above ASCII, empty
    lines before a request, and HTTP/1.0 with keep-alive. Raises Unknown."""
    requests: list[Seen] = []
    while data := data.lstrip(b"\r\n"):
        line = data.partition(b"\n")[0]
        target = line.split(b" ")[1] if line.count(b" ") == 2 else b""
        shown = bytes(byte if byte < 0x80 else ord("x") for byte in target)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24)
        connection.receive_data(data.replace(target, shown, 1) if shown != target else data)
        try:
            request = one_request(connection)
        except h11.RemoteProtocolError:
            return Meaning(requests, True)
        if request is None:
            return Meaning(requests, False)
        requests.append(request._replace(target=target))
        if connection.our_state is h11.MUST_CLOSE and not stays_in_http_1_0(data):
            return Meaning(requests, True)
        data = connection.trailing_data[0]
    return Meaning(requests, False)


def stays_in_http_1_0(data: bytes) -> bool:
    """Whether a request that h11 has accepted is HTTP/1.0 and asks to keep the connection open."""
    head = data.replace(b"\r\n", b"\n").partition(b"\n\n")[0].lower().split(b"\n")
    words = [word.strip() for line in head[1:] for name, _, value in [line.partition(b":")] if name == b"connection"
             for word in value.split(b",")]
    return head[0].endswith(b" http/1.0") and b"keep-alive" in words and b"close" not in words


def one_request(connection: h11.Connection) -> Seen | None:
    """The next complete request, answered with a 404; None: there is none. Raises h11.RemoteProtocolError, Unknown."""
    event = connection.next_event()
    if not isinstance(event, h11.Request):
        return None
    method, target = event.method, event.target
    body = b""
    while not isinstance(event, h11.EndOfMessage):
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            if str(error).startswith(TRAILERS):
                raise Unknown from None
            raise
        if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
            return None
        if isinstance(event, h11.Data):
            body += event.data
    connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    return Seen(method, target, body)
