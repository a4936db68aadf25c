"""All commands with their possible next words, read from the typer application and from the declared flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer
from typer.core import TyperArgument, TyperOption

from nsqc.commands import TOOLS
from nsqc.commands.pages.facts import choices
from nsqc.commands.tools import declared
from nsqc.options.admin import ADMIN
from nsqc.options.declared import SERVE, Declaration, Kind, OptionSet, flag_name
from nsqc.options.lookupd import LOOKUPD
from nsqc.tools.declare import Argument, Group, Tool, as_option
from nsqc.tools.declare import Kind as ToolKind
from nsqc.tools.declare import Option as ToolOption

BY_COMMAND: dict[str, Declaration[OptionSet]] = {"lookupd": LOOKUPD, "admin": ADMIN}
LISTS = (Kind.TEXTS, Kind.FLOATS)
BY_KIND: dict[Kind, Values] = {Kind.BOOL: ("true", "false"), Kind.FILE: "file", Kind.FOLDER: "folder"}
# What a parameter's metavar implies about its values.
BY_METAVAR = {"FILE": "file", "FOLDER": "folder"}

BY_TOOL_KIND: dict[ToolKind, Values] = {
    ToolKind.BOOL: "", ToolKind.FILE: "file", ToolKind.FOLDER: "folder", ToolKind.TOPIC: "topic",
    ToolKind.CHANNEL: "channel"}

# Possible values: a set of words, or "file", "folder", "text", "topic", "channel", or "" for none.
Values = tuple[str, ...] | str


class Option(NamedTuple):
    """A flag. implied: its value is optional."""

    name: str
    help: str
    values: Values
    implied: bool = False
    repeated: bool = False


class Word(NamedTuple):
    """An argument: its name in the help (in brackets if optional) and its values. many: the last one, which
    may be repeated."""

    name: str
    values: Values
    many: bool = False


class Node(NamedTuple):
    """A command. path: the words that call it; arguments: in order."""

    path: tuple[str, ...]
    help: str
    nodes: list[Node]
    options: list[Option]
    arguments: list[Word]

    @property
    def words(self) -> str:
        return " ".join(self.path)

    def all(self) -> Iterator[Node]:
        """This command and those below it."""
        yield self
        for node in self.nodes:
            yield from node.all()


def tree_of(context: typer.Context) -> Node:
    """The tree of a command's application, passed in as the context's obj."""
    describe: Callable[[], Node] = context.obj
    return describe()


# Any: typer's Command has no public name
def read_tree(application: Any) -> Node:
    """The whole tree, starting at `nsqc`."""
    return node_of(("nsqc",), application)


# Any: as above
def node_of(path: tuple[str, ...], command: Any) -> Node:
    """A typer command and those below it."""
    if len(path) > 1 and path[1] in TOOLS:
        return tool_node(declared(path[1]))
    context = typer.Context(command)
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    nodes = [node_of((*path, name), command.commands[name]) for name in names]
    options = [option_of(parameter, context) for parameter in command.params if isinstance(parameter, TyperOption)]
    options.append(Option("--help", "show this help", ""))
    if command.context_settings.get("ignore_unknown_options"):
        declaration = BY_COMMAND.get(path[-1], SERVE)
        options += [declared_option(name, declaration) for name in declaration.flags]
    arguments = [Word(parameter.metavar or "" if parameter.required else f"[{parameter.metavar}]",
                      values(parameter, context), parameter.nargs == -1)
                 for parameter in command.params if isinstance(parameter, TyperArgument)]
    return Node(path, " ".join((command.help or "").split("\n\n")[0].split()), nodes, options, arguments)


def tool_node(tool: Tool | Group) -> Node:
    """A tool and its sub-commands."""
    path = ("nsqc", *tool.path)
    help_option = Option("--help", "show this help", "")
    if isinstance(tool, Group):
        return Node(path, tool.help, [tool_node(child) for child in tool.tools], [help_option], [])
    arguments = [Word(each.name if each.required else f"[{each.name}]", tool_values(each), each.many)
                 for each in tool.arguments]
    named = [option for option in map(as_option, tool.arguments) if option is not None]
    options = [Option(f"--{option.name}", option.help, tool_values(option), repeated=option.many)
               for option in (*tool.options, *named)]
    return Node(path, tool.help, [], [*options, help_option], arguments)


def tool_values(declaration: ToolOption | Argument) -> Values:
    """The values of an option or argument of a tool."""
    words = declaration.choices if isinstance(declaration, ToolOption) else ()
    return words or BY_TOOL_KIND.get(declaration.kind, "text")


def option_of(option: TyperOption, context: typer.Context) -> Option:
    """An option of typer."""
    name = next(name for name in option.opts if name.startswith("--"))
    return Option(name, option.help or "", "" if option.is_flag else values(option, context),
                  repeated=option.multiple)


def values(parameter: TyperOption | TyperArgument, context: typer.Context) -> Values:
    """The values of a parameter of typer."""
    words = tuple(item.value for item in parameter.shell_complete(context, "") if item.type == "plain")
    return words or BY_METAVAR.get(parameter.metavar or "", "text")


def declared_option(name: str, declaration: Declaration[OptionSet]) -> Option:
    """A flag of a server."""
    kind = declaration.flags[name].kind
    values: Values = choices(name, declaration) or BY_KIND.get(kind, "text")
    return Option(flag_name(name), declaration.flags[name].help, values,
                  implied=kind in (Kind.BOOL, Kind.TLS_REQUIRED), repeated=kind in LISTS)
