"""Completion for bash 4 and later, without the bash-completion package."""

from __future__ import annotations

from nsqc.commands import NAMES_COMMAND
from nsqc.commands.pages.tree import Node, Values

# bash splits --flag=value into three words, unless COMP_WORDBREAKS has lost its =.
SCRIPT = """\
# Completion of nsqc for bash; made by `nsqc completion bash`.

_nsqc_propose() {  # arguments: where compgen takes words from
    mapfile -t COMPREPLY < <(compgen -P "$prefix" "$@" -- "$word")
}

_nsqc_files() {
    _nsqc_propose "$1"
    compopt -o filenames 2>/dev/null
}

_nsqc_names() {  # arguments: topic or channel; the running node is asked
    local line=${COMP_LINE-}
    _nsqc_propose -W "$("${COMP_WORDS[0]}" @NAMES@ "$1" "${line:0:${COMP_POINT-0}}" 2>/dev/null)"
}

_nsqc() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} place=nsqc
    local flag='' equals='' prefix='' skip='' count=0 item i
    COMPREPLY=()
    if [[ $word == -*=* ]]; then
        flag=${word%%=*} prefix=${word%%=*}= word=${word#*=} equals=1
    elif [[ $word == '=' ]]; then
        flag=$before word='' equals=1
    elif [[ $before == '=' ]]; then
        flag=${COMP_WORDS[COMP_CWORD-2]} equals=1
    elif [[ $before == -* ]]; then
        flag=$before
    fi
    [[ $flag == -[!-]* ]] && flag=-$flag
    # count: words after the command that are neither flags nor values of flags.
    for ((i = 1; i < COMP_CWORD; i++)); do
        item=${COMP_WORDS[i]}
        [[ $item == -[!-]* ]] && item=-$item
        if [[ $item == '=' ]]; then
            skip=1
        elif [[ -n $skip ]]; then
            skip=''
        elif [[ $item == -* ]]; then
            case "$place $item" in
                @TAKING@) skip=1 ;;
            esac
        else
            case "$place $item" in
                @PLACES@) place+=" $item" ;;
                *) count=$((count + 1)) ;;
            esac
        fi
    done
    # A boolean has a value after = only.
    if [[ -z $equals ]]; then
        case "$place $flag" in
            @IMPLIED@) flag='' ;;
        esac
    fi
    case "$place $flag" in
@VALUES@
    esac
    case $place in
@WORDS@
    esac
}

complete -F _nsqc nsqc
"""
SHELL_CODE = ("file", "folder", "topic", "channel")
JOIN = "|\\\n                "


def write(root: Node) -> str:
    """The script."""
    nodes = list(root.all())
    by_values: dict[Values, list[str]] = {}
    implied: list[str] = []
    for node in nodes:
        for option in node.options:
            if option.values:
                by_values.setdefault(option.values, []).append(f'"{node.words} {option.name}"')
            if option.implied:
                implied.append(f'"{node.words} {option.name}"')
    parts = {
        "NAMES": NAMES_COMMAND,
        "TAKING": JOIN.join(f'"{node.words} {option.name}"' for node in nodes for option in node.options
                            if option.values and not option.implied),
        "PLACES": JOIN.join(f'"{node.words}"' for node in nodes[1:]),
        "IMPLIED": JOIN.join(implied),
        "VALUES": "\n".join(f"        {JOIN.join(where)})\n            {action(values)}\n            return ;;"
                            for values, where in by_values.items()),
        "WORDS": "\n".join(f'        "{node.words}") {words(node)} ;;' for node in nodes),
    }
    text = SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def action(values: Values) -> str:
    """The shell code that proposes values; nothing for free text."""
    if isinstance(values, tuple):
        return f"_nsqc_propose -W '{' '.join(values)}'"
    return {"file": "_nsqc_files -f", "folder": "_nsqc_files -d", "topic": "_nsqc_names topic",
            "channel": "_nsqc_names channel"}.get(values, ":")


def words(node: Node) -> str:
    """The shell code that proposes the words after a command: sub-commands, flags, and its arguments' values."""
    kinds = [word.values for word in node.arguments]
    proposed = [child.path[-1] for child in node.nodes] + [value for kind in kinds[:1] if isinstance(kind, tuple)
                                                           for value in kind]
    proposed += [option.name for option in node.options]
    proposal = f"_nsqc_propose -W '{' '.join(proposed)}'"
    if not any(kind in SHELL_CODE for kind in kinds):
        return proposal
    cases = [f"{'*' if word.many else at}) {action(word.values)} ;;" for at, word in enumerate(node.arguments)]
    return f"if [[ $word == -* ]]; then {proposal}; else case $count in {' '.join(cases)} esac; fi"
