"""Requests that two servers could parse differently, each followed by another one.

TOPIC and HIDDN are replaced with names of the same length; a request to HIDDN must be executed only if it is one.
"""

HOST = b"Host: h\r\n"
# Sent as bodies of other requests, and after them.
NEXT = b"POST /topic/create?topic=HIDDN HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n",
    "tls": b"Upgrade: TLS/1.0, HTTP/1.1\r\nConnection: upgrade\r\n",
    "connection alone": b"Connection: Upgrade\r\n",
    "upgrade alone": b"Upgrade: h2c\r\n",
}


def post(fields: bytes = b"", body: bytes = b"", line: bytes = b"POST /pub?topic=TOPIC HTTP/1.1", host: bytes = HOST) -> bytes:
    """A request with exactly these fields."""
    return line + b"\r\n" + host + fields + b"\r\n" + body


def sized(body: bytes, fields: bytes = b"", line: bytes = b"POST /pub?topic=TOPIC HTTP/1.1") -> bytes:
    """The same with the length of its body."""
    return post(fields + b"Content-Length: %d\r\n" % len(body), body, line)


def _offers() -> dict[str, bytes]:
    cases = {}
    for name, offer in OFFERS.items():
        cases[f"{name}, hidden in a length"] = sized(NEXT, offer)
        cases[f"{name}, hidden in chunks"] = post(offer + CHUNKED, b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT))
        cases[f"{name}, length first"] = post(b"Content-Length: %d\r\n" % len(NEXT) + offer, NEXT)
        cases[f"{name}, expects"] = sized(b"abc", offer + b"Expect: 100-continue\r\n")
        for method in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"BREW"):
            line = method + b" /pub?topic=TOPIC HTTP/1.1"
            cases[f"{name}, {method.decode()}"] = post(offer, line=line)
            cases[f"{name}, {method.decode()} with a body"] = sized(NEXT, offer, line)
            cases[f"{name}, {method.decode()} with chunks"] = post(offer + CHUNKED, CHUNKS, line)
    return cases


def _connects() -> dict[str, bytes]:
    cases = {}
    for target in (b"/x", b"h:80"):
        line = b"CONNECT " + target + b" HTTP/1.1"
        cases[f"CONNECT {target.decode()}"] = post(line=line)
        cases[f"CONNECT {target.decode()} with a body"] = sized(NEXT, line=line)
        cases[f"CONNECT {target.decode()} with chunks"] = post(CHUNKED, CHUNKS, line)
    return cases


def _lengths() -> dict[str, bytes]:
    values = {
        "comma": b"3, 3", "two values": b"3, 0", "plus": b"+3", "minus": b"-0", "hexadecimal": b"0x3", "space": b"3 0",
        "empty": b"", "zero byte": b"3\x00", "leading zeros": b"0003", "blanks": b" \t 3 \t", "underscore": b"0_3",
        "fraction": b"3.0", "exponent": b"3e0", "huge": b"9" * 40, "64 bits": b"18446744073709551619", "letters": b"abc",
        "vertical tab": b"\x0b3", "superscript": "³".encode(), "quoted": b'"3"',
    }
    cases = {f"length: {name}": post(b"Content-Length: " + value + b"\r\n", b"abc") for name, value in values.items()}
    two = b"Content-Length: %b\r\nX: y\r\nContent-Length: %b\r\n"
    return cases | {
        "lengths: the same": post(two % (b"3", b"3"), b"abc"),
        "lengths: different": post(two % (b"3", b"0"), b"abc"),
        "lengths: the same number": post(two % (b"3", b"03"), b"abc"),
        "length: none": post(),
        "length: hidden": sized(NEXT),
        "length: without a space": post(b"content-length:3\r\n", b"abc"),
        "length: too short": post(b"Content-Length: 2\r\n", b"abc"),
        "length: underscore in the name": post(b"Content_Length: 3\r\n", b"abc"),
        "length and coding": post(b"Content-Length: %d\r\n" % len(CHUNKS) + CHUNKED, CHUNKS),
        "coding and length": post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n"),
        "length that ends before the chunks": post(b"Content-Length: 4\r\n" + CHUNKED, b"5c\r\n" + NEXT + b"\r\n0\r\n\r\n"),
        "length of GET": sized(NEXT, line=b"GET /ping HTTP/1.1"),
        "length of HEAD": sized(NEXT, line=b"HEAD /ping HTTP/1.1"),
        "length of DELETE": sized(NEXT, line=b"DELETE /ping HTTP/1.1"),
    }


def _codings() -> dict[str, bytes]:
    fields = {
        "tab": b"Transfer-Encoding:\tchunked\r\n", "no space": b"Transfer-Encoding:chunked\r\n",
        "capitals": b"TRANSFER-ENCODING: CHUNKED\r\n", "blanks": b"Transfer-Encoding: \t chunked \t\r\n",
        "other": b"Transfer-Encoding: xchunked\r\n", "identity": b"Transfer-Encoding: identity\r\n",
        "list": b"Transfer-Encoding: gzip, chunked\r\n", "list that ends in identity": b"Transfer-Encoding: chunked, identity\r\n",
        "twice in a list": b"Transfer-Encoding: chunked, chunked\r\n", "empty": b"Transfer-Encoding:\r\n",
        "comma": b"Transfer-Encoding: chunked,\r\n", "quoted": b'Transfer-Encoding: "chunked"\r\n',
        "twice": CHUNKED * 2, "twice, different": CHUNKED + b"Transfer-Encoding: identity\r\n",
        "space before the colon": b"Transfer-Encoding : chunked\r\n", "tab before the colon": b"Transfer-Encoding\t: chunked\r\n",
        "space before the name": b" Transfer-Encoding: chunked\r\n", "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
        "vertical tab behind": b"Transfer-Encoding: chunked\x0b\r\n", "zero byte": b"Transfer-Encoding: chunked\x00\r\n",
        "folded": b"Transfer-Encoding:\r\n chunked\r\n", "folded behind": b"Transfer-Encoding: chunked\r\n x\r\n",
        "line feed in the name": b"Transfer-Encoding\n: chunked\r\n", "carriage return": b"Transfer-Encoding: chunked\r\r\n",
        "behind a line feed": b"X: y\nTransfer-Encoding: chunked\r\n", "behind a carriage return": b"X: y\rTransfer-Encoding: chunked\r\n",
        "parameter": b"Transfer-Encoding: chunked;q=1\r\n", "underscore": b"Transfer_Encoding: chunked\r\n",
        "semicolon": b"Transfer-Encoding: chunked;\r\n", "name in quotes": b'"Transfer-Encoding": chunked\r\n',
    }
    cases = {f"coding: {name}": post(field, CHUNKS) for name, field in fields.items()}
    return cases | {f"coding and length 0: {name}": post(field + b"Content-Length: 0\r\n", CHUNKS)
                    for name, field in fields.items()}


def _chunks() -> dict[str, bytes]:
    bodies = {
        "plain": CHUNKS, "hidden": b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT), "leading zeros": b"0003\r\nabc\r\n000\r\n\r\n",
        "extension": b"3;x\r\nabc\r\n0;y=z\r\n\r\n", "quoted extension": b'3;x="a\\"b"\r\nabc\r\n0\r\n\r\n',
        "extension with a line feed": b"3;x\nabc\r\n0\r\n\r\n", "extension with a carriage return": b"3;x\rabc\r\nabc\r\n0\r\n\r\n",
        "extension with a zero byte": b"3;\x00\r\nabc\r\n0\r\n\r\n", "extension above ASCII": b"3;\xff\r\nabc\r\n0\r\n\r\n",
        "space before an extension": b"3 ;x\r\nabc\r\n0\r\n\r\n", "space behind a size": b"3 \r\nabc\r\n0\t\r\n\r\n",
        "space before a size": b" 3\r\nabc\r\n0\r\n\r\n", "space in a size": b"3 0\r\nabc\r\n0\r\n\r\n",
        "prefix": b"0x3\r\nabc\r\n0\r\n\r\n", "plus": b"+3\r\nabc\r\n0\r\n\r\n", "minus": b"-3\r\nabc\r\n0\r\n\r\n",
        "no size": b"\r\nabc\r\n0\r\n\r\n", "no hexadecimal size": b"g\r\nabc\r\n0\r\n\r\n", "underscore": b"0_3\r\nabc\r\n0\r\n\r\n",
        "huge size": b"f" * 17 + b"\r\nabc\r\n0\r\n\r\n", "size of 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
        "line feeds": b"3\nabc\n0\n\n", "line feed behind a size": b"3\nabc\r\n0\r\n\r\n",
        "line feed behind data": b"3\r\nabc\n0\r\n\r\n", "line feed at the end": b"3\r\nabc\r\n0\r\n\n",
        "line feed behind the last size": b"3\r\nabc\r\n0\n\r\n", "carriage returns": b"3\rabc\r0\r\r",
        "too much data": b"3\r\nabcd\r\n0\r\n\r\n", "too little data": b"4\r\nabc\r\n0\r\n\r\n",
        "no end of data": b"3\r\nabc0\r\n\r\n", "no last line": b"3\r\nabc\r\n0\r\n", "nothing": b"0\r\n\r\n",
        "carriage return twice": b"3\r\r\nabc\r\n0\r\n\r\n", "vertical tab": b"3\x0b\r\nabc\r\n0\r\n\r\n",
    }
    trailers = {
        "close": b"Connection: close\r\n", "keep-alive": b"Connection: keep-alive\r\n", "upgrade": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "length": b"Content-Length: 10\r\n", "coding": CHUNKED, "host": b"Host: other\r\n", "expect": b"Expect: tea\r\n",
        "many": b"X: y\r\n" * 100, "empty value": b"X:\r\n", "folded": b"X: y\r\n z\r\n", "line feed": b"X: y\n",
        "no colon": b"X\r\n", "no name": b": y\r\n", "space before the colon": b"X : y\r\n", "zero byte": b"X: \x00\r\n",
        "a request": b"GET /ping HTTP/1.1\r\n", "carriage return": b"X: y\rz\r\n", "too many": b"X: y\r\n" * 4000,
    }
    cases = {f"chunks: {name}": post(CHUNKED, body) for name, body in bodies.items()}
    return cases | {f"trailer: {name}": post(CHUNKED, b"3\r\nabc\r\n0\r\n" + trailer + b"\r\n") for name, trailer in trailers.items()}


def _fields() -> dict[str, bytes]:
    fields = {
        "folded": b"X: y\r\n z\r\n", "folded with a tab": b"X: y\r\n\tz\r\n", "folded at first": b" X: y\r\n",
        "folded length": b"Content-Length:\r\n 3\r\n", "line feeds": b"X: y\nY: z\n", "no colon": b"X\r\n", "no name": b": y\r\n",
        "carriage return": b"X: y\rz\r\n", "carriage return in a name": b"X\rY: z\r\n", "zero byte": b"X: \x00\r\n",
        "zero byte in a name": b"X\x00: y\r\n", "delete": b"X: \x7f\r\n", "above ASCII": b"X: \xff\xfe\r\n", "above ASCII in a name": b"X\xff: y\r\n",
        "tab in a value": b"X: y\tz\r\n", "space before the colon": b"X : y\r\n", "space in a name": b"X Y: z\r\n", "no value": b"X:\r\n",
        "escape": b"X: \x1b[2J\r\n", "parentheses": b"X(y): z\r\n", "hidden": b"X: y\r\n\r\n" + NEXT, "two carriage returns": b"X: y\r\r\n",
        "empty line of a line feed": b"X: y\r\n\n", "empty line with a space": b"X: y\r\n \r\n", "close": b"Connection: close\r\n",
        "close among others": b"Connection: x, Close ,y\r\n", "closed": b"Connection: closed\r\n", "proxy": b"Proxy-Connection: close\r\n",
        "close twice": b"Connection: keep-alive\r\nConnection: close\r\n", "expect": b"Expect: 100-continue\r\n", "expect other": b"Expect: tea\r\n",
    }
    return {f"field: {name}": post(field + b"Content-Length: 3\r\n", b"abc") for name, field in fields.items()}


def _lines() -> dict[str, bytes]:
    lines = {
        "two spaces": b"POST  /pub?topic=TOPIC HTTP/1.1", "two spaces behind": b"POST /pub?topic=TOPIC  HTTP/1.1",
        "tab": b"POST\t/pub?topic=TOPIC HTTP/1.1", "space before": b" POST /pub?topic=TOPIC HTTP/1.1",
        "space behind": b"POST /pub?topic=TOPIC HTTP/1.1 ", "space in the target": b"POST /pub?topic=TOPIC x HTTP/1.1",
        "zero byte": b"POST /pub?topic=TOPIC\x00 HTTP/1.1", "control": b"POST /pub?topic=TOPIC\x1b HTTP/1.1",
        "above ASCII": b"POST /pub?topic=TOPIC&x=\xc3\xbc HTTP/1.1", "above ASCII in the path": b"POST /p\xc3\xbcb?topic=TOPIC HTTP/1.1",
        "carriage return": b"POST /pub?topic=TOPIC HTTP/1.1\r", "method in brackets": b"P[ST /pub?topic=TOPIC HTTP/1.1",
        "method of one's own": b"BREW-2 /pub?topic=TOPIC HTTP/1.1", "method in lower case": b"post /pub?topic=TOPIC HTTP/1.1",
        "zero byte in the method": b"PO\x00T /pub?topic=TOPIC HTTP/1.1", "no target": b"POST HTTP/1.1", "empty": b"",
        "HTTP/1.2": b"POST /pub?topic=TOPIC HTTP/1.2", "HTTP/1.9": b"POST /pub?topic=TOPIC HTTP/1.9", "HTTP/2.0": b"POST /pub?topic=TOPIC HTTP/2.0",
        "HTTP/0.9": b"POST /pub?topic=TOPIC HTTP/0.9", "HTTP/1.10": b"POST /pub?topic=TOPIC HTTP/1.10", "HTTP/01.1": b"POST /pub?topic=TOPIC HTTP/01.1",
        "HTTP/1": b"POST /pub?topic=TOPIC HTTP/1", "RTSP/1.0": b"POST /pub?topic=TOPIC RTSP/1.0", "ICE/1.0": b"SOURCE /pub?topic=TOPIC ICE/1.0",
        "http/1.1": b"POST /pub?topic=TOPIC http/1.1", "HTTP 1.1": b"POST /pub?topic=TOPIC HTTP 1.1", "HTTP/1,1": b"POST /pub?topic=TOPIC HTTP/1,1",
        "no version": b"POST /pub?topic=TOPIC", "absolute": b"POST http://other/pub?topic=TOPIC HTTP/1.1",
        "asterisk": b"OPTIONS * HTTP/1.1", "fragment": b"POST /pub?topic=TOPIC#x HTTP/1.1", "relative": b"POST pub?topic=TOPIC HTTP/1.1",
        "backslash": b"POST \\pub?topic=TOPIC HTTP/1.1", "line feed": b"POST /pub?topic=TOPIC HTTP/1.1\n",
    }
    cases = {f"line: {name}": sized(b"abc", line=line) for name, line in lines.items()}
    hosts = {"two": HOST * 2, "none": b"", "slash": b"Host: a/b\r\n", "at": b"Host: a@b\r\n", "space": b"Host: a b\r\n",
             "empty": b"Host:\r\n", "above ASCII": b"Host: \xff\r\n", "with a port": b"Host: [::1]:4151\r\n", "folded": b"Host: a\r\n b\r\n",
             "space before the colon": b"Host : a\r\n"}
    length = b"Content-Length: 3\r\n"
    return cases | {f"host: {name}": post(length, b"abc", host=host) for name, host in hosts.items()} | {
        "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "empty line before": b"\r\n" + sized(b"abc"), "line feed before": b"\n" + sized(b"abc"), "carriage return before": b"\r" + sized(b"abc"),
        "empty line behind a body": sized(b"abc") + b"\r\n", "all line feeds": sized(b"abc").replace(b"\r\n", b"\n"),
        "HTTP/1.0": sized(b"abc", line=b"POST /pub?topic=TOPIC HTTP/1.0"),
        "HTTP/1.0, keep-alive": sized(b"abc", b"Connection: keep-alive\r\n", b"POST /pub?topic=TOPIC HTTP/1.0"),
        "HTTP/1.0, chunks": post(b"Connection: keep-alive\r\n" + CHUNKED, CHUNKS, b"POST /pub?topic=TOPIC HTTP/1.0"),
        "HTTP/1.0, chunks and length": post(b"Connection: keep-alive\r\n" + CHUNKED + b"Content-Length: 13\r\n", CHUNKS, b"POST /pub?topic=TOPIC HTTP/1.0"),
        "V2": b"  V2" + NEXT, "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + NEXT,
    }


def _cases() -> dict[str, bytes]:
    parts = (_offers(), _connects(), _lengths(), _codings(), _chunks(), _fields(), _lines())
    cases = {name: data + NEXT for part in parts for name, data in part.items()}
    assert len(cases) == sum(map(len, parts))
    return cases


CASES = _cases()
