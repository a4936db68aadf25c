"""All commands with what can be written behind them, read from the typer application and from serve's flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer
import typer.main

from nsqc.commands import COMMANDS
from nsqc.commands.app import NAMES, build
from nsqc.commands.pages.facts import choices
from nsqc.options.declared import FLAGS, Kind, flag_name

LISTS = (Kind.TEXTS, Kind.FLOATS)
BY_KIND = {Kind.BOOL: ("true", "false"), Kind.FILE: "file", Kind.FOLDER: "folder"}
# What a parameter's name in the help says of its values.
BY_METAVAR = {"FILE": "file", "FOLDER": "folder"}

# What can stand as a value: one of some words, or "file", "folder", "text", or "" for none at all.
Values = tuple[str, ...] | str


class Option(NamedTuple):
    """A flag. implied: its value may be left out."""

    name: str
    help: str
    values: Values
    implied: bool = False
    repeated: bool = False


class Node(NamedTuple):
    """A command. path: the words that call it; argument: its name in the help and its values, empty if it has none."""

    path: tuple[str, ...]
    help: str
    nodes: list[Node]
    options: list[Option]
    argument: tuple[str, Values]

    @property
    def words(self) -> str:
        return " ".join(self.path)

    def all(self) -> Iterator[Node]:
        """This one and those below it."""
        yield self
        for node in self.nodes:
            yield from node.all()


def read_tree() -> Node:
    """The tree from `nsqc` on."""
    root = node(("nsqc",), typer.main.get_command(build(NAMES)))
    order = {one.name: place for place, one in enumerate(COMMANDS)}
    root.nodes.sort(key=lambda one: order[one.path[-1]])
    return root


def node(path: tuple[str, ...], command: Any) -> Node:
    """A command of typer and those below it."""
    nodes = [node((*path, name), one) for name, one in getattr(command, "commands", {}).items()]
    context = typer.Context(command)
    options = [option(one, context) for one in command.params if one.param_type_name == "option"]
    options.append(Option("--help", "say what there is", ""))
    if command.context_settings.get("ignore_unknown_options"):
        options += [serve_option(name) for name in FLAGS]
    arguments = [(one.metavar if one.required else f"[{one.metavar}]", values(one, context))
                 for one in command.params if one.param_type_name == "argument"]
    return Node(path, " ".join((command.help or "").split("\n\n")[0].split()), nodes, options,
                arguments[0] if arguments else ("", ""))


def option(parameter: Any, context: Any) -> Option:
    """An option of typer's."""
    name = next(name for name in parameter.opts if name.startswith("--"))
    return Option(name, parameter.help or "", "" if parameter.is_flag else values(parameter, context),
                  repeated=parameter.multiple)


def values(parameter: Any, context: Any) -> Values:
    """What a parameter of typer's takes."""
    words = tuple(item.value for item in parameter.shell_complete(context, "") if item.type == "plain")
    return words or BY_METAVAR.get(parameter.metavar or "", "text")


def serve_option(name: str) -> Option:
    """A flag of serve's."""
    kind = FLAGS[name].kind
    return Option(flag_name(name), FLAGS[name].help, choices(name) or BY_KIND.get(kind, "text"),
                  implied=kind in (Kind.BOOL, Kind.TLS_REQUIRED), repeated=kind in LISTS)
