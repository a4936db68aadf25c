"""`nsqc topic rules` and `nsqc channel rules`: show and change the rules of a topic or channel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option, Value
from nsqc.tools import output
from nsqc.tools.acting import Acting, nodes_for
from nsqc.tools.declare import Values
from nsqc.tools.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node
    from nsqc.tools.nodehttp import NodeHttp

GROUP = "Rule"
RESET = Option("reset", "remove earlier settings", Kind.BOOL, False, GROUP)


def option_of(key: str, declared: Option) -> Option:
    """The option that sets a key of a rule. Nodes check durations and bytes."""
    option = Option(key.replace("_", "-"), declared.help, declared.kind, group=GROUP, least=declared.least,
                    most=declared.most)
    if declared.kind is Kind.DURATION:
        return option._replace(least=0, most=None)
    if key.endswith("_bytes"):
        return option._replace(kind=Kind.SIZE, most=None)
    if declared.kind is Kind.TOPIC:
        return option._replace(kind=Kind.TEXT, metavar="TOPIC")
    if declared.kind is Kind.BOOL:
        return option._replace(kind=Kind.TEXT, choices=("true", "false"))
    return option


def run(values: Values, call: str, arguments: Mapping[str, str], options: tuple[Option, ...]) -> int:
    """Makes the call on each node that has the topic, and shows the answers; arguments: topic, and channel."""
    tool = f"nsqc {call.strip('/').replace('/', ' ')}"
    acting = Acting(values, tool)
    changes = wanted(values, options, tool)
    nodes = acting.cluster.nodes(arguments["topic"]) or nodes_for(acting.cluster)

    def ask(api: NodeHttp, _: Node) -> object:
        from nsqc.tools.nodehttp import BadStatus

        try:
            if changes:
                return api.json("PUT", call, dict(arguments), json.dumps(changes).encode())
            return api.get(call, dict(arguments))
        except BadStatus as error:
            acting.warn("this node is an nsqd, which has no rules: " + error.args[0] if error.status == 404
                        else str(error))
            return None

    found = acting.cluster.each(nodes, ask, acting.warn)
    shown = [{"node": node.http, **rule} for node, rule in found.items() if isinstance(rule, dict)]
    if values.flag("json"):
        for rule in shown:
            output.as_json(rule)
    elif shown:
        keys = [key for key in shown[0] if key not in arguments]
        rows = [[key.replace("_", " ").upper() for key in keys]]
        rows += [[text(rule.get(key, "")) for key in keys] for rule in shown]
        output.write(output.table(rows))
    return acting.code if shown else EXIT_FAILED


def text(value: object) -> str:
    """A JSON value in a table."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def wanted(values: Values, options: tuple[Option, ...], tool: str) -> dict[str, Value | None]:
    """The changes requested by the command line, in the form of the call. Raises UsageError."""
    given = [option for option in options if values.given(option.name)]
    if values.flag("reset"):
        if given:
            raise UsageError(f"--reset and --{given[0].name} exclude each other", tool)
        return dict.fromkeys((key_of(option) for option in options), None)
    return {key_of(option): value_of(option, values) for option in given}


def key_of(option: Option) -> str:
    """The key of the rule set by an option."""
    return option.name.replace("-", "_")


def value_of(option: Option, values: Values) -> Value:
    """Its value for JSON."""
    if option.kind in (Kind.SIZE, Kind.INT, Kind.DURATION):
        return values.number(option.name)
    if option.kind is Kind.FLOAT:
        return values.decimal(option.name)
    word = values.text(option.name)
    return word == "true" if option.choices == ("true", "false") else word
