"""`nsqc drain`: has a daemon finish what is in flight, and stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nsqc.tools import output
from nsqc.tools.declare import Kind, Option, Tool, Values
from nsqc.tools.errors import EXIT_FAILED, ToolError, UsageError
from nsqc.tools.family import HTTP_NODES, JSON

if TYPE_CHECKING:
    from nsqc.tools.nodehttp import NodeHttp

WORDS = "nsqc drain"
EVERY_S = 0.2
FIELDS = {"state", "keep", "in_flight", "consumers", "deadline"}
DRAINED, STOPPED = "drained", "stopped"


def run(values: Values) -> int:
    """`nsqc drain`."""
    from nsqc.tools.cluster import Cluster

    if values.flag("undo") and (values.given("drain-timeout") or values.flag("keep")):
        raise UsageError("--undo takes back a drain: --drain-timeout and --keep mean nothing with it", WORDS)
    cluster = Cluster(values, WORDS)
    if len(cluster.nsqd) != 1:
        raise UsageError("give one --nsqd: a node is drained by itself", WORDS)
    node = cluster.nodes()[0]
    api = cluster.http(node)
    try:
        if values.flag("undo"):
            state = asked(api, "DELETE", {})
        else:
            arguments = {"keep": "true" if values.flag("keep") else "false"}
            if values.given("drain-timeout"):
                arguments["timeout"] = str(round(values.decimal("drain-timeout") * 1000))
            state = asked(api, "POST", arguments)
            if not values.flag("no-wait"):
                state = wait(api, state)
    finally:
        api.close()
    if values.flag("json"):
        output.as_json({"node": node.http, **state})
    else:
        output.line(f"{node.http}: {described(state)}")
    return EXIT_FAILED if state["state"] in (DRAINED, STOPPED) and state["in_flight"] else 0


def asked(api: NodeHttp, method: str, arguments: dict[str, str]) -> dict[str, Any]:     # Any: JSON
    """The state of a node's drain. Raises NoNode, ToolError."""
    from nsqc.tools.nodehttp import BadStatus

    try:
        state = api.json(method, "/drain", arguments)
        if not isinstance(state, dict) or not state.keys() >= FIELDS:
            raise ToolError(f"{api.address}: does not answer as nsqc does")
        return state
    except BadStatus as error:
        if error.status in (404, 405):
            raise ToolError(f"{api.address}: this daemon cannot be drained; stop it by SIGTERM") from None
        raise


def wait(api: NodeHttp, state: dict[str, Any]) -> dict[str, Any]:     # Any: JSON
    """Until nothing is in flight, the time is over, or the daemon has stopped. Raises ToolError."""
    from nsqc.tools.nodehttp import BadStatus, Unreachable

    shown = -1
    while state["state"] == "draining":
        if state["in_flight"] != shown and output.is_terminal(output.STDERR):
            shown = state["in_flight"]
            output.note(f"{WORDS}: {described(state)}")
        time.sleep(EVERY_S)
        try:
            state = asked(api, "GET", {})
        except (Unreachable, BadStatus):
            # It stops once it is drained, unless it is to be kept.
            if state["keep"]:
                raise
            if state["in_flight"] and time.time() >= state["deadline"] - EVERY_S:
                return {**state, "state": STOPPED}
            return {**state, "state": STOPPED, "in_flight": 0, "consumers": 0}
    if state["state"] == "serving":
        raise ToolError(f"{api.address}: somebody has undone the drain")
    return state


def described(state: dict[str, Any]) -> str:      # Any: JSON
    """A state in words."""
    if state["state"] == "draining":
        return f"draining, {state['in_flight']} messages are in flight to {state['consumers']} consumers"
    if state["state"] == DRAINED and state["in_flight"]:
        return f"the time is over, {state['in_flight']} messages are still in flight to {state['consumers']} consumers"
    if state["state"] == STOPPED and state["in_flight"]:
        return f"stopped when the time was over, with {state['in_flight']} messages in flight"
    return {"serving": "serves", DRAINED: "drained, nothing is in flight", STOPPED: "drained, and stopped"}.get(
        str(state["state"]), str(state["state"]))


TOOL = Tool(
    ("drain",), "Have a daemon finish what is in flight, and stop.", run,
    options=(
        Option("drain-timeout", "how long consumers may take; by default what the daemon has configured",
               Kind.DURATION, least=0),
        Option("keep", "do not stop the daemon at the end", Kind.BOOL, False),
        Option("undo", "have it serve again", Kind.BOOL, False),
        Option("no-wait", "do not wait for the end", Kind.BOOL, False),
        JSON, *HTTP_NODES),
    text="""A node that drains leaves the lookup servers, accepts no messages and subscriptions, and delivers nothing
        more; what is in flight may be finished. What waits stays on the node. The exit code is 1 if messages are
        still in flight when the time is over: they are delivered again after the next start.""",
    examples=(
        ("nsqc drain --drain-timeout 1m", "the local daemon, which stops then"),
        ("nsqc drain --nsqd 10.0.0.1:4150 --keep", "it stays, and shows what it has"),
        ("nsqc drain --undo", "it serves again")))
