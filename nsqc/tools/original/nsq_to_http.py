"""nsq_to_http"""

from __future__ import annotations

from nsqc import NSQD_VERSION
from nsqc.client.tls import tls
from nsqc.tools.errors import UsageError
from nsqc.tools.original import client_options
from nsqc.tools.original.cluster import LOOKUPD, MAX_IN_FLIGHT, NSQD, check_names, check_sources, cluster_of
from nsqc.tools.original.goflags import Flag, Flags
from nsqc.tools.original.program import Fatal, Program, log_line, warn_line
from nsqc.tools.original.status import Status
from nsqc.tools.tohttp.declaration import LONGEST_DELAY, read_header
from nsqc.tools.tohttp.running import Settings, send
from nsqc.tools.tohttp.url import read_url

OCTETS = "application/octet-stream"
MODES = {"hostpool": "round-robin", "round-robin": "round-robin", "epsilon-greedy": "least-busy"}


def run(flags: Flags) -> int:
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
    given = client_options.read(flags.texts("consumer-opt"), *client_options.LOOKUP, *client_options.AGAIN,
                                *client_options.PAUSES)
    most = flags.number("max-in-flight")
    if most < 0:
        raise Fatal(f"invalid MaxInFlight ! {most} < 0")
    cluster = cluster_of("nsq_to_http", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"), given)
    status = Status(flags.number("status-every"), tuple(read_url(text).text for text in post or get), log_line)
    send(cluster, Settings(
        (topic,), channel, post or get, bool(get), headers, flags.text("content-type"),
        f"nsq_to_http v{NSQD_VERSION}", MODES.get(flags.text("mode"), "all"), flags.number("n"), max(most, 1),
        flags.decimal("sample"), flags.decimal("http-client-connect-timeout"),
        flags.decimal("http-client-request-timeout"), given.requeue_delay,
        given.seconds("max_requeue_delay", LONGEST_DELAY), given.number("max_attempts", 0), given.pause,
        given.has_jitter, tls(), True),
        warn_line, status.add, insists=False)
    return 0


def check(flags: Flags, topic: str, channel: str, post: tuple[str, ...], get: tuple[str, ...]) -> None:
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
    Flag("topic", "string", "", "the topic"),
    Flag("channel", "string", "nsq_to_http", "channel to consume"),
    Flag("post", "value", (), "URL to POST messages to (may be repeated)"),
    Flag("get", "value", (), "URL with %s for the message (may be repeated)"),
    Flag("header", "value", (), "additional header, NAME: VALUE (may be repeated)"),
    Flag("content-type", "string", OCTETS, "content type of --post"),
    Flag("mode", "string", "hostpool", "how to choose a URL: hostpool, round-robin, epsilon-greedy; any other "
                                       "word: send to all"),
    Flag("sample", "float", 1.0, "fraction of messages to send, 0 to 1"),
    Flag("n", "int", 100, "concurrent requests"),
    MAX_IN_FLIGHT,
    Flag("status-every", "int", 250, "messages per status line; 0: none"),
    Flag("http-client-connect-timeout", "duration", 2.0, "timeout for connecting"),
    Flag("http-client-request-timeout", "duration", 20.0, "timeout for a whole request"),
    NSQD, LOOKUPD, client_options.flag("consumer-opt")), run)
