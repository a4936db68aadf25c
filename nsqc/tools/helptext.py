"""The output of `nsqc TOOL --help`, in one form for the whole family."""

from __future__ import annotations

import shutil
import textwrap

from nsqc.tools.declare import Argument, Group, Kind, Option, Tool, as_option

NARROWEST, WIDEST = 60, 110


def help_text(tool: Tool | Group) -> str:
    """The whole text."""
    width = max(NARROWEST, min(shutil.get_terminal_size((100, 24)).columns, WIDEST))
    return group_text(tool, width) if isinstance(tool, Group) else tool_text(tool, width)


def group_text(group: Group, width: int) -> str:
    """Sub-commands with their help."""
    lines = [f"Usage: {group.words} COMMAND [OPTIONS]", "", *textwrap.wrap(group.help, width), "", "Commands:"]
    column = max(len(tool.path[-1]) for tool in group.tools) + 4
    for tool in group.tools:
        lines += textwrap.wrap(tool.help, width, initial_indent=f"  {tool.path[-1]:{column - 2}}",
                               subsequent_indent=" " * column)
    return "\n".join([*lines, "", f"{group.words} COMMAND --help describes each."])


def tool_text(tool: Tool, width: int) -> str:
    """Usage, description, arguments, options by group, examples."""
    lines = [" ".join(["Usage:", tool.words, "[OPTIONS]", *map(usage, tool.arguments)]), "",
             *textwrap.wrap(tool.help, width)]
    for paragraph in filter(None, tool.text.split("\n\n")):
        lines += ["", *textwrap.wrap(" ".join(paragraph.split()), width)]
    if tool.arguments:
        lines += ["", "Arguments:"]
        for argument in tool.arguments:
            option = as_option(argument)
            head = argument.name if option is None else f"{argument.name}, or {flags(option)}"
            repeated = " (may be repeated)" if option is not None and option.many else ""
            lines += entry(head, argument.help + repeated, width)
    help_option = Option("help", "show this help", Kind.BOOL, short="h")
    options = (*tool.options, help_option)
    for group in dict.fromkeys(option.group for option in options):
        lines += ["", f"{group}:"]
        for option in options:
            if option.group == group:
                lines += entry(flags(option), described(option), width)
    if tool.examples:
        lines += ["", "Examples:"]
        for command, meaning in tool.examples:
            lines += [example(command, width),
                      *textwrap.wrap(meaning, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    return "\n".join(lines)


def example(command: str, width: int) -> str:
    """A command line; long ones are continued as in a shell."""
    parts = textwrap.wrap(command, width - 8, break_long_words=False, break_on_hyphens=False)
    return " \\\n      ".join([f"  {parts[0]}", *parts[1:]])


def usage(argument: Argument) -> str:
    """An argument in the usage line."""
    name = argument.name + ("..." if argument.many else "")
    return name if argument.required else f"[{name}]"


def flags(option: Option) -> str:
    """An option's flags."""
    short = f"-{option.short}, " if option.short else ""
    return f"{short}--{option.name}" + (f" {option.takes}" if option.takes else "")


def described(option: Option) -> str:
    """The help of an option with its default."""
    notes = []
    if option.many:
        notes.append("may be repeated")
    if option.default not in (None, "", False, ()):
        notes.append(f"default {written(option)}")
    return option.help + (f" ({'; '.join(notes)})" if notes else "")


def written(option: Option) -> str:
    """The default in command line form."""
    if option.kind is Kind.DURATION and isinstance(option.default, (int, float)):
        from nsqc.options.durations import format_duration

        return format_duration(round(option.default * 10**9))
    if option.kind is Kind.SIZE and isinstance(option.default, int):
        for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if option.default and option.default % size == 0:
                return f"{option.default // size}{unit}"
    return f"{option.default:g}" if isinstance(option.default, float) else str(option.default)


def entry(head: str, text: str, width: int) -> list[str]:
    """A term and its description."""
    return [f"  {head}", *textwrap.wrap(text, width, initial_indent=" " * 8, subsequent_indent=" " * 8)]
