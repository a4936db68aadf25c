"""The man page nsqc(1), as roff source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from msgspec import NODEFAULT
from msgspec.structs import fields
from typer.core import TyperGroup, TyperOption

from nsqc import NSQD_VERSION, __version__
from nsqc.options.declared import LARGEST, LONGEST, NO_KEY, SERVE, Declaration, OptionSet, flag_name, written
from nsqc.options.flags import marks, show
from nsqc.options.option import Kind
from nsqc.options.servers import ADMIN_SERVER, LOOKUPD

# ====================================================================== facts
# The properties of an option as text, for the pages.

def config_key(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The config file key; empty: none."""
    return "" if name in NO_KEY else declaration.flags[name].key or name


def fixed_default(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The default in written form; empty if there is none, or if it depends on the machine (see the help)."""
    default = next(field.default for field in fields(declaration.options) if field.name == name)
    text = "" if default is NODEFAULT else show(declaration.flags[name].kind, default)
    return f'"{text}"' if text != text.strip() else text


def takes(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The value's type, or its choices."""
    option = declaration.flags[name]
    return "|".join(option.values) or option.kind.value


def value_range(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """Lowest and highest value; empty: any value."""
    declared = declaration.flags[name]
    # A hundred years, or 64 bits, is not a limit in practice.
    most = None if declared.most == (LONGEST if declared.kind is Kind.DURATION else LARGEST) else declared.most
    if declared.least is not None and most is not None:
        return f"{written(declared, declared.least)} to {written(declared, most)}"
    if declared.least is not None:
        return f"at least {written(declared, declared.least)}"
    return f"at most {written(declared, most)}" if most is not None else ""


# ====================================================================== manpage

SITE = "https://nsq.io"
ITALIC, BOLD, ROMAN = "\\fI", "\\fB", "\\fR"


# Any: typer's Command has no public name
def man_page(root: Any) -> str:
    """The whole page; root: typer's command of nsqc."""
    head = f'.TH NSQC 1 "" "nsqc {__version__}" "User Commands"'
    return "\n".join([head, *introduction(), *commands_and_options(root), *running(), *examples()]) + "\n"


def introduction() -> list[str]:
    return [
        section("NAME", "nsqc \\- message queue daemon, in place of nsqd"),
        section("SYNOPSIS", f"{bold('nsqc serve')} [{italic('FLAGS')}]", ".br",
                f"{bold('nsqc')} {italic('COMMAND')} [{italic('ARGUMENTS')}]", ".br",
                f"{bold('nsqc lookupd')} [{italic('FLAGS')}]", ".br",
                f"{bold('nsqc admin')} [{italic('FLAGS')}]", ".br",
                f"{bold('nsqd')} [{italic('FLAGS')}]", ".br",
                f"{bold('nsqlookupd')} [{italic('FLAGS')}]", ".br",
                f"{bold('nsqadmin')} [{italic('FLAGS')}]"),
        section("DESCRIPTION",
                escape(f"nsqc replaces nsqd {NSQD_VERSION}, the daemon of NSQ: it accepts messages, queues them "
                       "and delivers them, with nsqd's TCP protocol, HTTP API, flags and files. Clients, tools and "
                       "data directories work unchanged."), ".PP",
                escape("nsqc lookupd replaces nsqlookupd: nodes register with it, and clients query it for the "
                       "nodes that have a topic."), ".PP",
                escape("nsqc admin replaces nsqadmin: a page that shows nodes, topics, channels and messages "
                       "and manages them, and its JSON API."), ".PP",
                escape("Invoked as nsqd, nsqlookupd or nsqadmin, through a link, it behaves as nsqc serve, "
                       "nsqc lookupd or nsqc admin. Invoked as one of NSQ's tools (nsq_tail, nsq_stat, "
                       "nsq_to_file, nsq_to_http, nsq_to_nsq, to_nsq), it takes that tool's flags.")),
    ]


# Any: as above
def commands_and_options(root: Any) -> list[str]:
    options = [escape(
        "These are the flags of nsqc serve. -name and --name are the same; a value follows = or is the next "
        "word. A boolean alone is true, and takes a value only after =. If a flag is repeated the last one counts, but "
        "lists grow. Durations are written like 250ms, 1h30m or 7d. In the environment, NSQC_ and the flag's name in "
        "capitals, with _ for -, sets an option: NSQC_LOG_LEVEL is --log-level. Flags override it; it overrides the "
        "config file.")]
    options += described(SERVE)
    lookupd = [escape("These are the flags of nsqc lookupd, written in the same way."), *described(LOOKUPD)]
    admin = [escape("These are the flags of nsqc admin, written in the same way."), *described(ADMIN_SERVER)]
    return [section("COMMANDS", *commands(("nsqc",), root)),
            section("OPTIONS", *options), section("OPTIONS OF LOOKUPD", *lookupd), section("OPTIONS OF ADMIN", *admin)]


def described(declaration: Declaration[OptionSet]) -> list[str]:
    """The flags of a program by group."""
    lines: list[str] = []
    for group, names in declaration.by_group().items():
        lines += [f'.SS "{escape(group)}"', *(line for name in names for line in option(name, declaration))]
    return lines


def running() -> list[str]:
    """Signals, files, exit codes."""
    return [
        section("SIGNALS",
                *term(bold("SIGTERM") + ", " + bold("SIGINT"),
                      "Stop: clients are disconnected, everything is written to disk, and the exit status is 0."),
                *term(bold("SIGHUP"), "Reload certificates and keys, and from the config file the options that "
                                     "change on SIGHUP.")),
        section("FILES",
                *term(italic("/etc/nsqc/nsqc.cfg"),
                      "The usual config file, given by --config: TOML, with nsqd's keys."),
                *term(italic("DATA_PATH/nsqd.dat"), "Topics and channels, in nsqd's format."),
                *term(italic("DATA_PATH/*.diskqueue.*"),
                      "Messages on disk and read positions, in nsqd's format.")),
        section("EXIT STATUS",
                *term(bold("0"), "A clean stop, or the command succeeded."),
                *term(bold("1"), "The daemon cannot start, or the command found an error."),
                *term(bold("2"), "The command line is invalid."),
                *term(bold("3"), "A tool finds no node that answers."),
                *term(bold("4"), "A topic, channel or node does not exist."),
                *term(bold("5"), "A worker: no nsqd will accept it, now or after a restart."),
                *term(bold("130"), "A tool has ended after SIGINT.")),
    ]


def examples() -> list[str]:
    return [
        section("EXAMPLES",
                *example("A daemon with a data folder:",
                         "nsqc serve --data-path=/var/lib/nsqc --lookupd-tcp-address=lookup:4160"),
                *example("Write a config file to start from, and check one:",
                         "nsqc config init /etc/nsqc/nsqc.cfg", "nsqc config check /etc/nsqc/nsqc.cfg"),
                *example("A first message, over HTTP:",
                         "curl -d hello 'http://127.0.0.1:4151/pub?topic=greetings'")),
        section("SEE ALSO", f"{bold('curl')}(1), {bold('systemd.service')}(5)", ".PP", escape(SITE)),
    ]


def section(title: str, *lines: str) -> str:
    return "\n".join([f'.SH "{title}"', *lines])


def term(head: str, text: str) -> list[str]:
    """A term, already in roff, and its description."""
    return [".TP", head, escape(text)]


def example(text: str, *lines: str) -> list[str]:
    return [".PP", escape(text), ".PP", ".RS 4", ".nf", *map(escape, lines), ".fi", ".RE"]


# Any: as above
def commands(path: tuple[str, ...], application: Any) -> Iterator[str]:
    """A command, or those of a group: options, except those of servers, which have sections, and arguments."""
    if isinstance(application, TyperGroup):
        for name in application.list_commands(typer.Context(application)):
            yield from commands((*path, name), application.commands[name])
        return
    head = bold(" ".join(path))
    options = [(next(name for name in each.opts if name.startswith("--")), each.help or "")
               for each in application.params if isinstance(each, TyperOption)]
    head += "".join(f" [{bold(name)}]" for name, _ in options)
    head += f" [{italic('FLAGS')}]" if application.context_settings.get("ignore_unknown_options") else ""
    for piece in application.collect_usage_pieces(typer.Context(application))[1:]:
        name = italic(piece.strip("[]{}").removesuffix("..."))
        head += f" [{name}]" if piece.startswith("[") else f" {name}"
    yield from term(head, " ".join((application.help or "").split("\n\n")[0].split()))
    for name, text in options:
        yield from (".RS", *term(bold(name), sentence(text)), ".RE")


def option(name: str, declaration: Declaration[OptionSet]) -> list[str]:
    """A flag: meaning, default, range, config key."""
    declared = declaration.flags[name]
    text = sentence(declared.help)
    notes = [("Default", fixed_default(name, declaration)), ("Range", value_range(name, declaration)),
             ("Config key", config_key(name, declaration))]
    text += "".join(f" {what}: {value}." for what, value in notes if value)
    text += "".join(f" {sentence(mark)}" for mark in marks(declared, declaration))
    return term(f"{bold(flag_name(name))}={italic(takes(name, declaration))}", text)


def sentence(text: str) -> str:
    """A help text with a capital letter and a full stop; names of programs stay lower-case."""
    return f"{text}." if text.startswith("nsq") else f"{text[0].upper()}{text[1:]}."


def bold(text: str) -> str:
    return BOLD + escape(text) + ROMAN


def italic(text: str) -> str:
    return ITALIC + escape(text) + ROMAN


def escape(text: str) -> str:
    """Text that man prints literally: copyable hyphens, and no requests from lines that begin with . or '."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text
