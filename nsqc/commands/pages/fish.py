"""Completion for fish: a `complete` line for each word, with the condition under which it is proposed."""

from __future__ import annotations

from nsqc.commands import NAMES_COMMAND
from nsqc.commands.pages.tree import Node, Option, Values

HEAD = """\
# Completion of nsqc for fish; made by `nsqc completion fish`.
complete -c nsqc -e
complete -c nsqc -f
"""


def write(root: Node) -> str:
    """The script."""
    return HEAD + "".join(f"{line}\n" for node in root.all() for line in lines(node))


def lines(node: Node) -> list[str]:
    """What can follow a command."""
    start = f"complete -c nsqc -n {quoted(condition(node))}"
    proposals = [f"{start} -a {child.path[-1]} -d {quoted(child.help)}" for child in node.nodes]
    # fish does not count words, so the values of all arguments are proposed.
    proposals += [f"{start} {argument}" for argument in dict.fromkeys(action(word.values) for word in node.arguments)
                  if argument]
    return proposals + [f"{start} {flag(option)} -d {quoted(option.help)}" for option in node.options]


def condition(node: Node) -> str:
    """The line has the command's words, and none of its sub-commands'."""
    if len(node.path) == 1:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {word}" for word in node.path[1:]]
    if node.nodes:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(child.path[-1] for child in node.nodes)}")
    return "; and ".join(seen)


def flag(option: Option) -> str:
    """A flag and its values. A boolean's are not proposed: to fish, a value is either required or absent."""
    name = f"-l {option.name.removeprefix('--')}"
    if not option.values or option.implied:
        return name
    return f"{name} {action(option.values) or '-x'}"


def action(values: Values) -> str:
    """The arguments that propose values; -x: a value, but not a file name."""
    if isinstance(values, tuple):
        return f"-x -a {quoted(' '.join(values))}"
    if values in ("topic", "channel"):
        return f"-x -a '(nsqc {NAMES_COMMAND} {values} (commandline -pc) 2>/dev/null)'"
    return {"file": "-r -F", "folder": "-x -a '(__fish_complete_directories)'"}.get(values, "")


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
