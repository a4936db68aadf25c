"""Declared options as parameters of typer: of the tools, and of the servers' flags for completion."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

from nsqc.options.option import Kind, Option, format_duration
from nsqc.tools.declare import Argument, Group, Tool, as_option, parse
from nsqc.tools.running import guarded

NAMES = (Kind.TOPIC, Kind.CHANNEL)
NEGATIVE = re.compile(r"-[0-9]")    # a place such as -1h; no option begins with a digit
MARK = "\0"                         # in front of such a word, for typer; no word of a command line has one
WIDEST = 110


def add_tool(app: typer.Typer, tool: Tool | Group) -> None:
    """Adds a tool, or a group with its sub-commands."""
    if isinstance(tool, Group):
        group = typer.Typer(help=tool.help, rich_markup_mode=None)
        for child in tool.tools:
            add_tool(group, child)
        app.add_typer(group, name=tool.path[-1])
    else:
        paragraphs = [tool.help, *(" ".join(paragraph.split()) for paragraph in tool.text.split("\n\n"))]
        app.command(tool.path[-1], cls=command_class(tool), help="\n\n".join(filter(None, paragraphs)),
                    context_settings={"max_content_width": WIDEST})(function_of(tool))


# ---------------------------------------------------------------------- parameters


def fields(tool: Tool) -> Iterator[tuple[str, Option | Argument]]:
    """The parameters of a tool's function; option names such as --from are not names in Python."""
    named = [option for option in map(as_option, tool.arguments) if option is not None]
    items: list[Option | Argument] = [*tool.options, *named, *tool.arguments]
    for number, item in enumerate(items):
        yield f"p{number}", item


def function_of(tool: Tool) -> Callable[..., int]:
    """The function that typer calls; it returns the exit code."""
    def call(**values: object) -> int:
        return guarded(tool.words, lambda: tool.run(parse(tool, *given(tool, values))))

    return with_parameters(call, {name: argument_of(tool, item) if isinstance(item, Argument)
                                  else option_of(item, proposing(tool, item)) for name, item in fields(tool)})


def with_parameters(function: Callable[..., int], annotations: Mapping[str, object]) -> Callable[..., int]:
    """The function with parameters that typer reads."""
    function.__annotations__ = {}
    function.__signature__ = inspect.Signature([    # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()])
    return function


def option_of(option: Option, propose: Callable[..., list[str]]) -> object:
    """An option. typer only collects the texts: conversions and checks are ours."""
    flags = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    if option.kind is Kind.BOOL:
        return Annotated[bool, typer.Option(*flags, help=option.help, show_default=False)]
    return Annotated[list[str], typer.Option(*flags, help=option.help, metavar=option.takes, autocompletion=propose)]


def argument_of(tool: Tool, argument: Argument) -> object:
    """An argument. None is required: most have an option, too."""
    info = typer.Argument(help=argument.help, metavar=argument.name if argument.required else f"[{argument.name}]",
                          autocompletion=proposing(tool, argument))
    return Annotated[list[str], info] if argument.many else Annotated[str, info]


def given(tool: Tool, values: Mapping[str, object]) -> tuple[dict[str, list[str]], list[str]]:
    """The texts of options by name, and the words, of parameters that typer has read."""
    texts: dict[str, list[str]] = {}
    words: list[str] = []
    for name, item in fields(tool):
        value = values.get(name)
        found = [] if not value and value != "" else [str(text).removeprefix(MARK) for text in (
            value if isinstance(value, (list, tuple)) else [value])]
        if isinstance(item, Argument):
            words += found
        else:
            texts[item.name] = found
    return texts, words


# ---------------------------------------------------------------------- completion


def proposing(tool: Tool, item: Option | Argument) -> Callable[..., list[str]]:
    """A typer completion: words, or names from nodes; nothing for files, which the shell knows."""
    def propose(context: typer.Context) -> list[str]:
        if isinstance(item, Option) and item.values:
            return list(item.values)
        if item.kind not in NAMES:
            return []
        from nsqc.tools.cluster import names  # of use to a shell only

        texts, words = given(tool, context.params)
        return names(item.kind, texts, [*texts.get("topic", ()), *words])

    return propose


def takes_flags(options: Mapping[str, Option]) -> type[TyperCommand]:
    """A command that leaves flags in Go's grammar to its function; typer completes them."""
    class TakesFlags(TyperCommand):
        # Any: typer's Context has no public name that fits
        def get_params(self, ctx: Any) -> list[Any]:
            own = super().get_params(ctx)
            return [*own, *flag_parameters(options)] if ctx.resilient_parsing else own

    return TakesFlags


def flag_parameters(options: Mapping[str, Option]) -> list[Any]:     # Any: as above
    """Flags as typer's parameters."""
    def proposing_values(option: Option) -> Callable[..., list[str]]:
        return lambda: list(option.values)

    app = typer.Typer(add_completion=False)
    app.command()(with_parameters(lambda: 0, {name: option_of(option, proposing_values(option))
                                              for name, option in options.items()}))
    return typer.main.get_command(app).params


# ---------------------------------------------------------------------- help


def command_class(tool: Tool) -> type[TyperCommand]:
    """The typer command of a tool, with arguments, groups of options and examples in its help."""
    class ToolCommand(TyperCommand):
        # Any: typer's Context and HelpFormatter have no public names that fit
        def collect_usage_pieces(self, ctx: Any) -> list[str]:
            return ["[OPTIONS]", *map(usage, tool.arguments)]

        # Any: as above
        def format_options(self, ctx: Any, formatter: Any) -> None:
            if tool.arguments:
                with formatter.section("Arguments"):
                    formatter.write_dl([term(argument) for argument in tool.arguments])
            options = (*tool.options, Option("help", "show this help", Kind.BOOL, short="h"))
            for group in dict.fromkeys(option.group for option in options):
                with formatter.section(group):
                    formatter.write_dl([(flags(option), described(option)) for option in options
                                        if option.group == group])

        # Any: as above
        def format_epilog(self, ctx: Any, formatter: Any) -> None:
            if tool.examples:
                with formatter.section("Examples"):
                    for command, meaning in tool.examples:
                        formatter.write(f"{example(command, formatter.width)}\n      {meaning}\n")

        # Any: as above
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, [MARK + word if NEGATIVE.match(word) else word for word in args])

    return ToolCommand


def usage(argument: Argument) -> str:
    """An argument in the usage line."""
    name = argument.name + ("..." if argument.many else "")
    return name if argument.required else f"[{name}]"


def term(argument: Argument) -> tuple[str, str]:
    """An argument and its help."""
    option = as_option(argument)
    if option is None:
        return argument.name, argument.help
    return f"{argument.name}, or {flags(option)}", argument.help + (" (may be repeated)" if option.many else "")


def flags(option: Option) -> str:
    """An option's flags."""
    short = f"-{option.short}, " if option.short else ""
    return f"{short}--{option.name} {option.takes}".rstrip()


def described(option: Option) -> str:
    """The help of an option with its default."""
    notes = ["may be repeated"] if option.many else []
    if option.default not in (None, "", False, ()):
        notes.append(f"default {written(option)}")
    return option.help + (f" ({'; '.join(notes)})" if notes else "")


def written(option: Option) -> str:
    """The default in command line form."""
    if option.kind is Kind.DURATION and isinstance(option.default, int):
        return format_duration(option.default)
    if option.kind is Kind.SIZE and isinstance(option.default, int):
        for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if option.default and option.default % size == 0:
                return f"{option.default // size}{unit}"
    return f"{option.default:g}" if isinstance(option.default, float) else str(option.default)


def example(command: str, width: int) -> str:
    """A command line; long ones are continued as in a shell."""
    parts = textwrap.wrap(command, width - 8, break_long_words=False, break_on_hyphens=False)
    return " \\\n      ".join([f"  {parts[0]}", *parts[1:]])
