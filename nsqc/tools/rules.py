"""`nsqc rules`: declares the rules of topics and channels in a file, on all nodes.

A file has the tables of a config file, [topics."GLOB"] and [channels."TOPIC/CHANNEL"]. Nodes agree on nothing: each has
the tables that it was given, so a node that could not be reached is reported, and given them by the next call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqc.options.option import Kind
from nsqc.tools import running
from nsqc.tools.acting import Acting, nodes_for
from nsqc.tools.declare import EXIT_FAILED, HTTP_NODES, JSON, Argument, Group, Tool, UsageError, Values
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node, NodeHttp

FILE = Argument("FILE", 'a file with tables [topics."GLOB"] and [channels."TOPIC/CHANNEL"]', Kind.FILE)
SCOPES = ("topics", "channels")


def wanted(values: Values, tool: str) -> dict[str, Json]:
    """The tables of the file, in the form of PUT /rules. Raises UsageError."""
    from nsqc.options.declared import OptionError
    from nsqc.options.file import read_rules

    try:
        return read_rules(values.text("FILE"))
    except OptionError as error:
        raise UsageError(str(error), tool) from None


def asked(acting: Acting, call: Callable[[NodeHttp], Json]) -> dict[Node, dict[str, Json]]:
    """The answers of all nodes to a call about /rules; each node that gives none is reported. Raises NoNode."""
    from nsqc.tools.cluster import BadStatus

    def careful(api: NodeHttp, _: Node) -> Json:
        try:
            return call(api)
        except BadStatus as error:
            acting.warn(f"{api.address}: skipped: an nsqd has no rules" if error.status == 404 else str(error))
            return None

    found = acting.cluster.each(nodes_for(acting.cluster), careful, acting.warn)
    return {node: answer for node, answer in found.items() if isinstance(answer, dict)}


def same(answer: dict[str, Json], tables: dict[str, Json]) -> bool:
    """Whether a node has these tables, in this order: the first that fits a name applies."""
    return all([*(answer.get(scope) or {}).items()] == [*tables[scope].items()] for scope in SCOPES)


def apply(values: Values) -> int:
    """`nsqc rules apply`."""
    acting = Acting(values, "nsqc rules apply")
    tables = wanted(values, acting.tool)

    def put(api: NodeHttp) -> Json:
        if same(api.get("/rules"), tables):
            return {"done": "has them already"}
        api.json("PUT", "/rules", body=json.dumps(tables).encode())
        return {"done": "applied"}

    for node, answer in asked(acting, put).items():
        if values.flag("json"):
            running.as_json({"node": node.http, **answer})
        else:
            running.line(f"{node.http}: {answer['done']}")
    return acting.code


def diff(values: Values) -> int:
    """`nsqc rules diff`."""
    acting = Acting(values, "nsqc rules diff")
    tables = wanted(values, acting.tool)
    differ = False
    for node, answer in asked(acting, lambda api: api.get("/rules")).items():
        before, after = (lines(each) for each in (answer, tables))
        changes = [f"- {line}" for line in before if line not in after]
        changes += [f"+ {line}" for line in after if line not in before]
        if not changes and not same(answer, tables):
            changes = ["  the same tables in another order"]
        differ = differ or bool(changes)
        if values.flag("json"):
            running.as_json({"node": node.http, "same": not changes, "changes": changes})
        elif changes:
            running.write("\n".join([f"{node.http}:", *changes, ""]))
    return EXIT_FAILED if differ else acting.code


def lines(tables: dict[str, Json]) -> list[str]:
    """Each key of each table, as a line."""
    return [f'{scope}."{glob}": {key} = {json.dumps(value)}' for scope in SCOPES
            for glob, rule in (tables.get(scope) or {}).items() for key, value in (rule or {"": None}).items()]


def list_rules(values: Values) -> int:
    """`nsqc rules list`."""
    acting = Acting(values, "nsqc rules list")
    found = asked(acting, lambda api: api.get("/rules"))
    if values.flag("json"):
        for node, answer in found.items():
            running.as_json({"node": node.http, **answer})
        return acting.code
    having: dict[tuple[str, str], list[str]] = {}
    for node, answer in found.items():
        parts = {"declared": answer, **{source: answer.get(source) or {} for source in ("set", "config", "defaults")}}
        for source, part in parts.items():
            for line in lines(part):
                having.setdefault((source, line), []).append(node.http)
    rows = [["FROM", "RULE", "NODES"]]
    rows += [[source, line, "all" if len(nodes) == len(found) else ", ".join(nodes)]
             for (source, line), nodes in having.items() if source != "defaults" or len(nodes) < len(found)]
    running.write(running.table(rows) if len(rows) > 1 else "no rules\n")
    return acting.code


TOOL = Group(("rules",), "Declare the rules of topics and channels on all nodes.", (
    Tool(("rules", "apply"), "Declare the rules in a file on all nodes, in place of those declared before.", apply,
         options=(JSON, *HTTP_NODES), arguments=(FILE,),
         text="""The file has the tables of a config file, which they precede; names that do not exist yet are fine.
              Values that nsqc topic rules, nsqc channel rules or the page have set for single names precede both.
              A node that was not reached is reported, and the exit code is 1; nsqc admin --rules keeps applying a
              file.""",
         examples=(("nsqc rules apply rules.toml --nsqlookupd lookup:4161", "on all registered nodes"),)),
    Tool(("rules", "diff"), "Show how the declared rules of nodes differ from a file.", diff,
         options=(JSON, *HTTP_NODES), arguments=(FILE,),
         text="The exit code is 1 if a node differs or was not reached.",
         examples=(("nsqc rules diff rules.toml --nsqlookupd lookup:4161", "before applying it"),)),
    Tool(("rules", "list"), "List the rules of nodes, and the nodes that have each.", list_rules,
         options=(JSON, *HTTP_NODES),
         text="""FROM is declared (by apply), set (for a single name), config (the node's config file), or defaults (its
              options, such as --topic-storage: only those that differ between nodes).""",
         examples=(("nsqc rules list --nsqlookupd lookup:4161", "of all registered nodes"),))))
