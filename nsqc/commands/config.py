"""`nsqc config`: check, show and write configurations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.commands import TAKES_FLAGS
from nsqc.commands.start import EXIT_REFUSED, EXIT_USAGE, tell
from nsqc.options.declared import FLAGS, KEYS, NO_KEY, OptionError
from nsqc.options.flags import FlagError, HelpWanted, by_group, help_text, parse_flags, plain, show

command = typer.Typer(help="Check, show and write configurations.")


def refuse(text: str, code: int = EXIT_REFUSED) -> int:
    """Tells in a line why not; returns the exit code."""
    print(f"nsqc config: {text}", file=sys.stderr)
    return code


@command.command("check")
def check_command(file: Annotated[str, typer.Argument(help="the config file", metavar="FILE")]) -> int:
    """Say what is wrong with a config file.

    It is read as serve would, and so are the files it names. Nothing is bound, connected to or written. The exit code
    is 0 where nothing but warnings is found, else 1.
    """
    from nsqc.options.check import examine

    options, count, findings = examine(file)
    for line, fatal, text in findings:
        place = f"{file}:{line}" if line else file
        tell(f"{place}: {'error' if fatal else 'warning'}: {text}")
    if any(fatal for _, fatal, _ in findings):
        return EXIT_REFUSED
    folder = f"data path {options.data_path} can be written" if options.data_path else (
        "no data path is set, files go to the folder nsqc is started in")
    tell(f"{file}: ok, {count} option{'' if count == 1 else 's'}; {folder}")
    return 0


@command.command("show", context_settings=TAKES_FLAGS)
def show_command(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, values as a config file has them")] = False,
) -> int:
    """Print all values and where they come from.

    It takes the flags of serve, --config among them, and tells what the daemon would use with them.
    """
    try:
        options, sources, unknown = effective(context.args)
    except HelpWanted:
        tell(help_text().replace("Usage: nsqc serve [FLAGS]", "Usage: nsqc config show [--json] [FLAGS]"))
        return 0
    except FlagError as error:
        return refuse(f"{error} (nsqc serve --help lists all flags)", EXIT_USAGE)
    except OptionError as error:
        return refuse(str(error))
    for key in unknown:
        print(f"nsqc config: warning: unknown key {key!r} is passed over", file=sys.stderr)
    tell(as_json_text(options, sources) if as_json else as_table(options, sources))
    return 0


def effective(words: list[str]) -> tuple[Any, dict[str, str], list[str]]:
    """Options as the daemon has them in force, where each comes from by config key, and unknown keys.

    Raises FlagError, HelpWanted, OptionError.
    """
    from nsqc.commands.start import check_addresses, from_file
    from nsqc.options.declared import Options, check
    from nsqc.options.tls import settle

    flags = parse_flags(words)
    given, unknown = from_file(flags)
    asked = Options(**{**given, **flags})
    check(asked)
    check_addresses(asked)
    options = settle(asked)
    sources = {}
    for key, name in KEYS.items():
        sources[key] = "flag" if name in flags else "config file" if name in given else "default"
        if getattr(asked, name) != getattr(options, name):
            sources[key] = "tls_client_auth_policy"  # the one option that others follow from
    return options, sources, unknown


def as_json_text(options: Any, sources: dict[str, str]) -> str:
    """Values as a config file has them."""
    found = {key: {"value": plain(FLAGS[KEYS[key]].kind, getattr(options, KEYS[key])), "from": source}
             for key, source in sources.items()}
    return json.dumps(found, indent=2, ensure_ascii=False)


def as_table(options: Any, sources: dict[str, str]) -> str:
    """Key, value and source, under the titles of the groups."""
    keys = {name: key for key, name in KEYS.items()}
    values = {key: show(FLAGS[name].kind, getattr(options, name)) or '""' for key, name in KEYS.items()}
    width, wide = max(map(len, values)), min(40, max(map(len, values.values())))
    lines: list[str] = []
    for group, names in by_group().items():
        lines += ["", f"{group}:"]
        for key in (keys[name] for name in names if name not in NO_KEY):
            lines.append(f"  {key:{width}}  {values[key]:{wide}}  {sources[key]}")
    return "\n".join(lines[1:])


@command.command("init")
def init_command(
    file: Annotated[str, typer.Argument(help="where to write it; by default it is printed", metavar="FILE")] = "",
    force: Annotated[bool, typer.Option("--force", help="write over a file that is there")] = False,
) -> int:
    """Write a config file to begin with.

    It has every option with its meaning and default, commented out.
    """
    from nsqc.commands.pages.template import template

    if not file:
        tell(template().rstrip("\n"))
        return 0
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as out:
            out.write(template())
    except FileExistsError:
        return refuse(f"{file} is there already, --force writes over it")
    except OSError as error:
        return refuse(f"{file} cannot be written - {error.strerror}")
    print(f"{file} written")
    return 0
