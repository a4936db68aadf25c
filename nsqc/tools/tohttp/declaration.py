"""The command line of `nsqc to-http`."""

from __future__ import annotations

import re
import ssl
from functools import partial

from nsqc import __version__
from nsqc.options.option import MS, Kind, Option, S
from nsqc.tools import running
from nsqc.tools.declare import CHANNEL_OPTION, TCP_NODES, TOPICS, Tool, UsageError, Values, in_flight

PLACE = "nsqc to-http"
say = partial(running.print_error, PLACE)
LONGEST_DELAY = 900.0   # seconds until a failed message is delivered again
SERVERS, FAILURES = "Servers", "Failures"
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\U0010ffff]*)")


def run(values: Values) -> int:
    """`nsqc to-http`."""
    topics = tuple(dict.fromkeys(values.texts("TOPIC")))
    post, get = values.texts("post"), values.texts("get")
    if bool(post) == bool(get):
        raise UsageError("give either --post or --get", PLACE)
    if get and values.given("content-type"):
        raise UsageError("--content-type needs --post", PLACE)
    for text in get:
        if text.count("%s") != 1:
            raise UsageError(f"--get {text}: needs one %s, for the message", PLACE)
    headers = [read_header(text, PLACE) for text in values.texts("header")]
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.tohttp.engine import PAUSE, Settings, send

    return send(Cluster(values, PLACE), Settings(
        topics, values.text("channel"), post or get, bool(get), headers,
        values.text("content-type") or "application/octet-stream", f"nsqc-to-http/{__version__}", values.text("mode"),
        values.number("at-once"), values.number("max-in-flight"), values.decimal("sample"),
        values.seconds("connect-timeout"), values.seconds("request-timeout"), values.seconds("requeue-delay"),
        LONGEST_DELAY, values.number("max-attempts"), PAUSE, False, tls_of(values), values.flag("wait")), say)


def read_header(text: str, place: str) -> tuple[str, str]:
    """Name and value of a header. Raises UsageError."""
    found = HEADER.fullmatch(text)
    if found is None or not found[2].strip():
        raise UsageError(f"--header {text!r}: not NAME: VALUE", place)
    if found[1].lower() in ("content-length", "transfer-encoding", "connection"):
        raise UsageError(f"--header {found[1]}: cannot be set", place)
    return found[1], found[2].strip()


def tls_of(values: Values) -> ssl.SSLContext:
    """The context for HTTPS servers. Raises UsageError."""
    from nsqc.client.tls import tls

    try:
        return tls(values.text("server-ca") or None, verify=not values.flag("server-insecure"))
    except OSError as error:
        raise UsageError(f"--server-ca: {error.strerror or error}", PLACE) from None


TOOL = Tool(
    ("to-http",), "Send messages to HTTP servers.", run,
    options=(
        CHANNEL_OPTION._replace(default="nsq_to_http"),
        in_flight(200),
        Option("wait", "also accept topics that do not exist yet, which nsqd then creates", Kind.BOOL, False),
        Option("sample", "fraction of messages to send, 0 to 1; the others are finished unsent", Kind.FLOAT, 1.0,
               least=0, most=1),
        Option("post", "URL to POST messages to", Kind.TEXT, None, SERVERS, many=True, metavar="URL"),
        Option("get", "URL to GET with the escaped message in place of its %s", Kind.TEXT, None, SERVERS, many=True,
               metavar="URL"),
        Option("header", "additional header, NAME: VALUE", Kind.TEXT, None, SERVERS, many=True, metavar="HEADER"),
        Option("content-type", "content type for --post; default: application/octet-stream", Kind.TEXT, "", SERVERS,
               metavar="TYPE"),
        Option("mode", "URL for a message: round-robin, the one with the fewest requests, or all of them",
               default="round-robin", group=SERVERS, choices=("round-robin", "least-busy", "all")),
        Option("at-once", "concurrent requests", Kind.INT, 100, SERVERS, least=1, most=10_000),
        Option("connect-timeout", "timeout for connecting", Kind.DURATION, 2 * S, SERVERS, least=MS),
        Option("request-timeout", "timeout for a whole request", Kind.DURATION, 20 * S, SERVERS, least=MS),
        Option("server-ca", "authorities to trust for HTTPS, PEM; default: the system's", Kind.FILE, "", SERVERS),
        Option("server-insecure", "accept any certificate of a server", Kind.BOOL, False, SERVERS),
        Option("requeue-delay", "delay before a failed message is redelivered, times its attempts, at most 15m",
               Kind.DURATION, 10 * S, FAILURES, least=0, most=900 * S),
        Option("max-attempts", "drop a message after this many attempts; 0: never", Kind.INT, 0, FAILURES, least=0,
               most=65535),
        *TCP_NODES),
    arguments=(TOPICS,),
    text="""A message is finished when a server has answered with 200 to 299, or a GET with 200. Anything else is a
         failure, including a redirect, which is not followed, and a timeout: the message is requeued, and delivered
         again after --requeue-delay. It is never dropped, unless --max-attempts says so.

         A failing server is avoided for a while, if there are others. After three consecutive failures nothing is sent
         for a second, then a single message; the pauses double, up to 2 minutes.""",
    examples=(
        ("nsqc to-http orders --post http://127.0.0.1:8080/orders", "each message as the body of a POST"),
        ("nsqc to-http orders --get 'http://127.0.0.1:8080/seen?order=%s'", "in the URL of a GET"),
        ("nsqc to-http orders --post https://a.example/in --post https://b.example/in "
         "--header 'Authorization: Bearer 123' --content-type application/json --at-once 20", "two servers in turn")))
