"""`nsqc drain`: makes a daemon finish messages in flight, and stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option
from nsqc.tools import running
from nsqc.tools.declare import EXIT_FAILED, HTTP_NODES, JSON, Tool, ToolError, UsageError, Values
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import NodeHttp

WORDS = "nsqc drain"
EVERY_S = 0.2
FIELDS = {"state", "keep", "in_flight", "consumers", "deadline"}
DRAINED, STOPPED = "drained", "stopped"


def run(values: Values) -> int:
    """`nsqc drain`."""
    from nsqc.tools.cluster import Cluster

    if values.flag("undo") and (values.given("drain-timeout") or values.flag("keep")):
        raise UsageError("--undo cancels a drain: it excludes --drain-timeout and --keep", WORDS)
    cluster = Cluster(values, WORDS)
    if len(cluster.nsqd) != 1:
        raise UsageError("give one --nsqd: nodes are drained one at a time", WORDS)
    node = cluster.nodes()[0]
    api = cluster.http(node)
    try:
        if values.flag("undo"):
            state = asked(api, "DELETE", {})
        else:
            arguments = {"keep": "true" if values.flag("keep") else "false"}
            if values.given("drain-timeout"):
                arguments["timeout"] = str(round(values.seconds("drain-timeout") * 1000))
            state = asked(api, "POST", arguments)
            if not values.flag("no-wait"):
                state = wait(api, state)
    finally:
        api.close()
    if values.flag("json"):
        running.as_json({"node": node.http, **state})
    else:
        running.line(f"{node.http}: {described(state)}")
    return EXIT_FAILED if state["state"] in (DRAINED, STOPPED) and state["in_flight"] else 0


def asked(api: NodeHttp, method: str, arguments: dict[str, str]) -> dict[str, Json]:
    """The state of a node's drain. Raises NoNode, ToolError."""
    from nsqc.tools.cluster import BadStatus

    try:
        state = api.json(method, "/drain", arguments)
        if not isinstance(state, dict) or not state.keys() >= FIELDS:
            raise ToolError(f"{api.address}: does not answer as nsqc does")
        return state
    except BadStatus as error:
        if error.status in (404, 405):
            raise ToolError(f"{api.address}: this daemon cannot be drained; stop it by SIGTERM") from None
        raise


def wait(api: NodeHttp, state: dict[str, Json]) -> dict[str, Json]:
    """Waits until nothing is in flight, the time is up, or the daemon has stopped. Raises ToolError."""
    from nsqc.tools.cluster import BadStatus, Unreachable

    shown = -1
    while state["state"] == "draining":
        if state["in_flight"] != shown and running.is_terminal(running.STDERR):
            shown = state["in_flight"]
            running.note(f"{WORDS}: {described(state)}")
        time.sleep(EVERY_S)
        try:
            state = asked(api, "GET", {})
        except (Unreachable, BadStatus):
            # It stops once drained, unless --keep was given.
            if state["keep"]:
                raise
            if state["in_flight"] and time.time() >= state["deadline"] - EVERY_S:
                return {**state, "state": STOPPED}
            return {**state, "state": STOPPED, "in_flight": 0, "consumers": 0}
    if state["state"] == "serving":
        raise ToolError(f"{api.address}: the drain was cancelled by another client")
    return state


def described(state: dict[str, Json]) -> str:
    """Describes a state."""
    if state["state"] == "draining":
        return f"draining, {state['in_flight']} messages in flight to {state['consumers']} consumers"
    if state["state"] == DRAINED and state["in_flight"]:
        return f"timed out, {state['in_flight']} messages still in flight to {state['consumers']} consumers"
    if state["state"] == STOPPED and state["in_flight"]:
        return f"stopped after the timeout, with {state['in_flight']} messages in flight"
    return {"serving": "serving", DRAINED: "drained, nothing in flight", STOPPED: "drained and stopped"}.get(
        str(state["state"]), str(state["state"]))


TOOL = Tool(
    ("drain",), "Make a daemon finish messages in flight, and stop.", run,
    options=(
        Option("drain-timeout", "timeout for consumers; default: the daemon's setting",
               Kind.DURATION, least=0),
        Option("keep", "do not stop the daemon at the end", Kind.BOOL, False),
        Option("undo", "cancel the drain and serve again", Kind.BOOL, False),
        Option("no-wait", "do not wait for the end", Kind.BOOL, False),
        JSON, *HTTP_NODES),
    text="""A draining node unregisters from the lookup servers, refuses messages and subscriptions, and delivers
         nothing more; messages in flight may be finished. Waiting messages stay on the node. The exit code is 1 if
         messages are still in flight at the timeout: they are delivered again after the next start.""",
    examples=(
        ("nsqc drain --drain-timeout 1m", "the local daemon, which then stops"),
        ("nsqc drain --nsqd 10.0.0.1:4150 --keep", "keeps running, so you can inspect it"),
        ("nsqc drain --undo", "serve again")))
