"""Completion for zsh, by its _arguments. Source it after compinit, or save it as _nsqc in a folder of fpath."""

from __future__ import annotations

from nsqc.commands import NAMES_COMMAND
from nsqc.commands.pages.tree import Node, Option, Values, Word

HEAD = """\
#compdef nsqc
# Completion of nsqc for zsh; made by `nsqc completion zsh`.
"""
GROUP = """\
{function}() {{
    local curcontext=$curcontext state state_descr line
    typeset -A opt_args
    _arguments -C \\
{options}
        ':command:->command' \\
        '*:::words:->words'
    case $state in
        command)
            local -a commands=(
{commands}
            )
            _describe command commands ;;
        words)
            # _arguments has removed the command, which its function expects as the first word.
            words=($line[1] "${{words[@]}}")
            (( CURRENT += 1 ))
            case $line[1] in
{calls}
            esac ;;
    esac
}}
"""
LEAF = """\
{function}() {{
    _arguments{specs}
}}
"""
TAIL = """\
if [[ $funcstack[1] == _nsqc ]]; then
    _nsqc "$@"
else
    compdef _nsqc nsqc
fi
"""


def write(root: Node) -> str:
    """The script."""
    return "\n".join([HEAD, *map(function, root.all()), TAIL])


def function(node: Node) -> str:
    """The function that completes the words after a command."""
    name = "_".join(("", *node.path))
    specs = [f"        {spec(option)}" for option in node.options]
    if not node.nodes:
        words = [f"        {quoted(word_spec(word))}" for word in node.arguments]
        return LEAF.format(function=name, specs="".join(f" \\\n{line}" for line in specs + words))
    return GROUP.format(
        function=name,
        options=" \\\n".join(specs) + " \\",
        commands="\n".join(f"                {quoted(f'{child.path[-1]}:{escape(child.help)}')}"
                           for child in node.nodes),
        calls="\n".join(f"                {child.path[-1]}) {name}_{child.path[-1]} ;;" for child in node.nodes))


def word_spec(word: Word) -> str:
    """An argument as _arguments takes it: two colons if optional, a star if repeated."""
    return f"{'*' if word.many else ''}{'::' if word.name.startswith('[') and not word.many else ':'}" \
           f"{escape(word.name.strip('[]'))}:{action(word.values)}"


def spec(option: Option) -> str:
    """A flag as _arguments takes it. A boolean's value follows after = only."""
    text = ("*" if option.repeated else "") + option.name
    if option.values:
        text += "=-" if option.implied else "="
    text += f"[{escape(option.help)}]"
    if option.values:
        text += f"{'::' if option.implied else ':'}value:{action(option.values)}"
    return quoted(text)


def action(values: Values) -> str:
    """The zsh action that proposes values; nothing for free text."""
    if isinstance(values, tuple):
        return f"({' '.join(values)})"
    if values in ("topic", "channel"):
        return f'{{compadd -- ${{(f)"$(nsqc {NAMES_COMMAND} {values} "$LBUFFER" 2>/dev/null)"}}}}'
    return {"file": "_files", "folder": "_files -/"}.get(values, " ")


def escape(text: str) -> str:
    for special in "\\[]:":
        text = text.replace(special, f"\\{special}")
    return text


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
