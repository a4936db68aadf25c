"""`nsqc probe`: checks whether a server answers, for health checks of containers without curl."""

from __future__ import annotations

from nsqc.options.option import Kind, Option, S
from nsqc.tools import running
from nsqc.tools.declare import AUTH, CONFIG, EXIT_FAILED, EXIT_OK, TIMEOUT, TLS, Argument, Tool, UsageError, Values

WORDS = "nsqc probe"
WELL, NOT_FOUND = 200, 404


def run(values: Values) -> int:
    """`nsqc probe`."""
    from nsqc.client.address import http_address
    from nsqc.client.errors import BadAddress
    from nsqc.tools.cluster import NodeHttp, local_node
    from nsqc.tools.declare import Security

    given = values.text("ADDRESS")
    if given and values.given("config"):
        raise UsageError("give either an address or --config", WORDS)
    local = None if given else local_node(values.text("config"))
    try:
        is_tls = values.flag("tls")
        address = given or (local.https if local and is_tls else "") or (local.http if local else "")
        security = Security(values, WORDS, has_urls=bool(http_address(address).tls))
        tls = security.context if is_tls or http_address(address).tls else None
        api = NodeHttp(address, values.seconds("timeout"), tls, secret=security.secret())
    except BadAddress as error:
        raise UsageError(str(error), WORDS) from None
    try:
        answer = api.answer("GET", "/readyz" if values.flag("ready") else "/livez")
        if answer.status == NOT_FOUND and not values.flag("ready"):
            answer = api.answer("GET", "/ping")     # the only check of NSQ's own programs
    finally:
        api.close()
    text = answer.body.decode(errors="replace")
    if answer.status != WELL:
        running.note(f"{WORDS}: {api.address}: {answer.status} {text}")
        return EXIT_FAILED
    running.line(text)
    return EXIT_OK


TOOL = Tool(
    ("probe",), "Check whether a server is alive, or ready; reports by exit code.", run,
    options=(
        Option("ready", "check whether it accepts clients (/readyz), not only whether it is alive", Kind.BOOL,
               False),
        CONFIG, TIMEOUT._replace(help="timeout for the answer", default=3 * S), *TLS, AUTH),
    arguments=(Argument("ADDRESS", "HTTP address or URL of the server; default: the local daemon's",
                        Kind.ADDRESS, required=False),),
    text="""Requests /livez; from a server without it, such as NSQ's own, /ping. The exit code is 0 if the server
         reports that it is healthy, 1 if it reports that it is not, and 3 if it does not answer. Meant for health
         checks of containers, whose images have no curl.""",
    examples=(
        ("nsqc probe", "the daemon on this machine, or in this container"),
        ("nsqc probe 127.0.0.1:4161", "a lookup server"),
        ("nsqc probe --ready --tls --tls-insecure 127.0.0.1:4152", "over HTTPS, with any certificate")))
