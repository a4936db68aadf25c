"""Options shared by tools: one name for one thing."""

from __future__ import annotations

from nsqc.options.durations import MS, S
from nsqc.options.option import Kind, Option
from nsqc.tools.declare import Argument

NODES, SECURITY, OUTPUT = "Nodes", "TLS, authentication, compression", "Output"
HIGHEST_IN_FLIGHT = 1_000_000

NSQD = Option("nsqd", "nsqd to use, by its TCP address or the path of its unix socket", Kind.ADDRESS, None, NODES,
              many=True)
NSQLOOKUPD = Option("nsqlookupd", "nsqlookupd to query for nsqd, by its HTTP address, or a URL such as "
                                  "https://lookup.example/lookup; if one fails, the next is queried",
                    Kind.ADDRESS, None, NODES, many=True)
HTTP = Option("http", "HTTP address, or URL, of each --nsqd, in the same order; default: the port after the TCP port",
              Kind.ADDRESS, None, NODES, many=True)
CONFIG = Option("config", "config file of the local daemon, used without --nsqd and --nsqlookupd; default: "
                          "$NSQC_CONFIG, then /etc/nsqc/nsqc.cfg; without such a file $NSQC_TCP_ADDRESS, or "
                          "127.0.0.1:4150",
                Kind.FILE, "", NODES)
TIMEOUT = Option("timeout", "timeout for connecting and for each answer", Kind.DURATION, 5 * S, NODES, least=MS)

TLS = (
    Option("tls", "use TLS with nsqd, and HTTPS", Kind.BOOL, False, SECURITY),
    Option("tls-ca", "authorities to trust, PEM; default: the system's", Kind.FILE, "", SECURITY),
    Option("tls-cert", "certificate of this client, PEM", Kind.FILE, "", SECURITY),
    Option("tls-key", "its key, PEM", Kind.FILE, "", SECURITY),
    Option("tls-insecure", "accept any certificate", Kind.BOOL, False, SECURITY),
)
AUTH = Option("auth-secret", "secret for AUTH, and token for HTTP; @FILE reads it from a file", Kind.TEXT, "",
              SECURITY, metavar="SECRET")
NODE_ADDRESSES = Option("node-addresses", "host, network such as 10.0.0.0/8, or glob such as *.nsq.internal, of nodes "
                        "that get --auth-secret although only --nsqlookupd names them; default: over HTTP those for "
                        "which nsqc lookupd's access file vouches, over TCP all", Kind.TEXT, None, SECURITY, many=True,
                        metavar="HOSTS")
COMPRESSION = (
    Option("deflate", "compress with deflate, level 1 to 9", Kind.INT, 0, SECURITY, least=0, most=9, metavar="LEVEL"),
    Option("snappy", "compress with snappy", Kind.BOOL, False, SECURITY),
)


def other_side(prefix: str, group: str) -> tuple[Option, ...]:
    """The options for TLS, authentication and compression again, with a prefix."""
    return tuple(option._replace(name=f"{prefix}{option.name}", group=group) for option in (*TLS, AUTH, *COMPRESSION))


# Tools that query nodes over HTTP, and tools that also use NSQ's protocol.
HTTP_NODES = (NSQD, NSQLOOKUPD, HTTP, CONFIG, TIMEOUT, *TLS, AUTH, NODE_ADDRESSES)
TCP_NODES = (*HTTP_NODES, *COMPRESSION)

JSON = Option("json", "JSON instead of text, for scripts", Kind.BOOL, False, OUTPUT)
YES = Option("yes", "do not ask for confirmation", Kind.BOOL, False, OUTPUT, short="y")

TOPIC = Argument("TOPIC", "the topic", Kind.TOPIC)
TOPICS = Argument("TOPIC", "one or more topics", Kind.TOPIC, many=True)
CHANNEL = Argument("CHANNEL", "the channel", Kind.CHANNEL)
# For tools whose other words are not topics.
TOPIC_OPTION = Option("topic", "the topic", Kind.TOPIC, "")
FROM = Option("from", "start in a topic's log: beginning, end, an offset, a time in RFC 3339, or an age "
                      "such as 1h or 7d", Kind.PLACE, "")
CHANNEL_OPTION = Option("channel", "the channel", Kind.CHANNEL, "")


def in_flight(default: int) -> Option:
    """--max-in-flight."""
    return Option("max-in-flight", "messages that may be in flight, over all nsqd", Kind.INT, default, least=1,
                  most=HIGHEST_IN_FLIGHT)
