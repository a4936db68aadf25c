"""nsq_to_http"""

from __future__ import annotations

from nsqc import NSQD_VERSION
from nsqc.client.tls import tls
from nsqc.options.option import Kind, Option, S
from nsqc.tools.declare import UsageError, Values
from nsqc.tools.original import program
from nsqc.tools.original.program import (
    LOOKUPD,
    MAX_IN_FLIGHT,
    NSQD,
    Fatal,
    Program,
    Status,
    check_names,
    check_sources,
    cluster_of,
    log_line,
    warn_line,
)
from nsqc.tools.tohttp.declaration import LONGEST_DELAY, read_header
from nsqc.tools.tohttp.engine import Settings, send
from nsqc.tools.tohttp.sender import read_url

OCTETS = "application/octet-stream"
MODES = {"hostpool": "round-robin", "round-robin": "round-robin", "epsilon-greedy": "least-busy"}


def run(flags: Values) -> int:
    """The exit code."""
    headers = []
    for text in flags.texts("header"):
        name, colon, value = text.partition(":")
        if not (name.strip() and colon and value.strip()):
            raise Fatal("--header value format should be 'key=value'")
        try:
            headers.append(read_header(text, "nsq_to_http"))
        except UsageError as error:
            raise Fatal(f"ERROR: {error}") from None
    post, get = flags.texts("post"), flags.texts("get")
    topic, channel = flags.text("topic"), flags.text("channel")
    check(flags, topic, channel, post, get)
    given = program.read(flags.texts("consumer-opt"), *program.LOOKUP, *program.AGAIN,
                                *program.PAUSES)
    most = flags.number("max-in-flight")
    if most < 0:
        raise Fatal(f"invalid MaxInFlight ! {most} < 0")
    cluster = cluster_of("nsq_to_http", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"), given)
    status = Status(flags.number("status-every"), tuple(read_url(text).text for text in post or get), log_line)
    send(cluster, Settings(
        (topic,), channel, post or get, bool(get), headers, flags.text("content-type"),
        f"nsq_to_http v{NSQD_VERSION}", MODES.get(flags.text("mode"), "all"), flags.number("n"), max(most, 1),
        flags.decimal("sample"), flags.seconds("http-client-connect-timeout"),
        flags.seconds("http-client-request-timeout"), given.requeue_delay,
        given.seconds("max_requeue_delay", LONGEST_DELAY), given.number("max_attempts", 0), given.pause,
        given.has_jitter, tls(), True),
        warn_line, status.add, insists=False)
    return 0


def check(flags: Values, topic: str, channel: str, post: tuple[str, ...], get: tuple[str, ...]) -> None:
    """Raises Fatal."""
    if not topic or not channel:
        raise Fatal("--topic and --channel are required")
    if flags.text("content-type") != OCTETS and get:
        raise Fatal("--content-type only used with --post")
    if not flags.text("content-type"):
        raise Fatal("--content-type requires a value when used")
    check_sources(flags)
    if not post and not get:
        raise Fatal("--get or --post required")
    if post and get:
        raise Fatal("use --get or --post not both")
    if any(text.count("%s") != 1 for text in get):
        raise Fatal("invalid GET address - must be a printf string")
    if not 0 <= flags.decimal("sample") <= 1:
        raise Fatal("ERROR: --sample must be between 0.0 and 1.0")
    check_names((topic,), channel)
    if flags.number("n") < 1:
        raise Fatal("no handlers")


PROGRAM = Program("nsq_to_http", (
    Option("topic", "the topic"),
    Option("channel", "channel to consume", default="nsq_to_http"),
    Option("post", "URL to POST messages to (may be repeated)", many=True),
    Option("get", "URL with %s for the message (may be repeated)", many=True),
    Option("header", "additional header, NAME: VALUE (may be repeated)", many=True),
    Option("content-type", "content type of --post", default=OCTETS),
    Option("mode", "how to choose a URL: hostpool, round-robin, epsilon-greedy; any other "
                                       "word: send to all", default="hostpool"),
    Option("sample", "fraction of messages to send, 0 to 1", Kind.FLOAT, 1.0),
    Option("n", "concurrent requests", Kind.INT, 100),
    MAX_IN_FLIGHT,
    Option("status-every", "messages per status line; 0: none", Kind.INT, 250),
    Option("http-client-connect-timeout", "timeout for connecting", Kind.DURATION, 2 * S),
    Option("http-client-request-timeout", "timeout for a whole request", Kind.DURATION, 20 * S),
    NSQD, LOOKUPD, program.flag("consumer-opt")), run)
