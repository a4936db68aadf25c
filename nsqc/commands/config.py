"""`nsqc config`: check, show and write configurations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from nsqc.commands import TAKES_FLAGS
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, print_text
from nsqc.options.declared import FLAGS, KEYS, NO_KEY, RULE_KEYS, SERVE, OptionError, Options
from nsqc.options.flags import FlagError, HelpWanted, help_text, parse_flags, plain, show
from nsqc.options.resolve import effective
from nsqc.options.topic_tables import KEY as TOPICS

command = typer.Typer(help="Check, show and write configurations.")


def refuse(text: str, code: int = EXIT_REFUSED) -> int:
    """Prints an error; returns the exit code."""
    print(f"nsqc config: {text}", file=sys.stderr)
    return code


@command.command("check")
def check_command(file: Annotated[str, typer.Argument(help="the config file", metavar="FILE")]) -> int:
    """Check a config file.

    The file and those it names are read as by serve. Nothing is bound, connected to or written. The exit code is 1 if
    there are errors, and 0 if there are only warnings.
    """
    from nsqc.options.check import examine

    options, option_count, findings = examine(file)
    for line, fatal, text in findings:
        place = f"{file}:{line}" if line else file
        print_text(f"{place}: {'error' if fatal else 'warning'}: {text}")
    if any(fatal for _, fatal, _ in findings):
        return EXIT_REFUSED
    folder = f"data path {options.data_path} can be written" if options.data_path else (
        "no data path is set, files go to the folder nsqc is started in")
    counts = [f"{option_count} option{'' if option_count == 1 else 's'}"]
    if options.topics:
        counts.append(f"{len(options.topics)} topic table{'' if len(options.topics) == 1 else 's'}")
    print_text(f"{file}: ok, {', '.join(counts)}; {folder}")
    return 0


@command.command("show", context_settings=TAKES_FLAGS)
def show_command(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, values as a config file has them")] = False,
) -> int:
    """Print all values and where they come from.

    It takes the flags of serve, including --config, and prints the values the daemon would use with them.
    """
    try:
        options, sources, unknown = effective(parse_flags(context.args))
    except HelpWanted:
        print_text(help_text().replace("Usage: nsqc serve [FLAGS]", "Usage: nsqc config show [--json] [FLAGS]"))
        return 0
    except FlagError as error:
        return refuse(f"{error} (nsqc serve --help lists all flags)", EXIT_USAGE)
    except OptionError as error:
        return refuse(str(error))
    for key in unknown:
        print(f"nsqc config: warning: unknown key {key!r} is ignored", file=sys.stderr)
    print_text(as_json_text(options, sources) if as_json else as_table(options, sources))
    return 0


def as_json_text(options: Options, sources: dict[str, str]) -> str:
    """Values as in a config file."""
    values: dict[str, dict[str, object]] = {
        key: {"value": plain(FLAGS[KEYS[key]].kind, options.value(KEYS[key])), "from": source}
        for key, source in sources.items()}
    if options.topics:
        tables = {table.glob: {key: plain(FLAGS[RULE_KEYS[key]].kind, value) for key, value in table.values.items()}
                  for table in options.topics}
        values[TOPICS] = {"value": tables, "from": "config file"}
    return json.dumps(values, indent=2, ensure_ascii=False)


def as_table(options: Options, sources: dict[str, str]) -> str:
    """Key, value and source, under the titles of the groups."""
    keys = {name: key for key, name in KEYS.items()}
    values = {key: show(FLAGS[name].kind, options.value(name)) or '""' for key, name in KEYS.items()}
    key_width, value_width = max(map(len, values)), min(40, max(map(len, values.values())))
    lines: list[str] = []
    for group, names in SERVE.by_group().items():
        lines += ["", f"{group}:"]
        for key in (keys[name] for name in names if name not in NO_KEY):
            lines.append(f"  {key:{key_width}}  {values[key]:{value_width}}  {sources[key]}")
    for table in options.topics:
        lines += ["", f"{table.title}:"]
        lines += [f"  {key:{key_width}}  {show(FLAGS[RULE_KEYS[key]].kind, value):{value_width}}  config file"
                  for key, value in table.values.items()]
    return "\n".join(lines[1:])


@command.command("init")
def init_command(
    file: Annotated[str, typer.Argument(help="where to write it; printed by default", metavar="FILE")] = "",
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing file")] = False,
    lookupd: Annotated[bool, typer.Option("--lookupd", help="for nsqc lookupd instead of nsqc serve")] = False,
) -> int:
    """Write a config file to start from.

    It has every option with its meaning and default, commented out.
    """
    from nsqc.commands.pages.template import template
    from nsqc.options.lookupd import LOOKUPD

    text = template(LOOKUPD if lookupd else SERVE)
    if not file:
        print_text(text.rstrip("\n"))
        return 0
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        return refuse(f"{file} exists, --force overwrites it")
    except OSError as error:
        return refuse(f"{file} cannot be written - {error.strerror}")
    print(f"{file} written")
    return 0
