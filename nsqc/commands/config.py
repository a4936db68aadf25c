"""`nsqc config`: check, show and write configurations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.commands import TAKES_FLAGS, declaration_of
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, print_text
from nsqc.commands.typed import takes_flags
from nsqc.log.formats import mask
from nsqc.options.declared import FLAGS, NO_KEY, Declaration, OptionError, Options, OptionSet, RuleTable
from nsqc.options.flags import from_environment, help_text, parse_flags, plain, show, shown
from nsqc.options.option import FlagError, HelpWanted
from nsqc.options.resolve import effective
from nsqc.options.rule_tables import BY_KEY, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsqc.options.check import Finding, Report

FOR_LOOKUPD = "for nsqc lookupd instead of nsqc serve"
FOR_ADMIN = "for nsqc admin instead of nsqc serve"
Lookupd = Annotated[bool, typer.Option("--lookupd", help=FOR_LOOKUPD)]
Admin = Annotated[bool, typer.Option("--admin", help=FOR_ADMIN)]

command = typer.Typer(help="Check, show and write configurations.")


def refuse(text: str, code: int = EXIT_REFUSED) -> int:
    """Prints an error; returns the exit code."""
    print(f"nsqc config: {mask(text)}", file=sys.stderr)
    return code


def server_of(lookupd: bool, admin: bool) -> Declaration[OptionSet]:
    """Whose options are meant. Ends the process with an error for both."""
    if lookupd and admin:
        raise typer.Exit(refuse("--lookupd and --admin exclude each other", EXIT_USAGE))
    return declaration_of("lookupd" if lookupd else "admin" if admin else "serve")


@command.command("check")
def check_command(
    file: Annotated[str, typer.Argument(help="the config file", metavar="FILE")],
    lookupd: Lookupd = False,
    admin: Admin = False,
) -> int:
    """Check a config file.

    Reads the file and the files it names, as serve does. Binds, connects to and writes nothing. The exit code is 1 if
    there are errors, and 0 if there are only warnings.
    """
    from nsqc.options.check import examine

    report = examine(file, server_of(lookupd, admin))
    options = report.options
    report.findings.extend(in_access_file(str(options.value("access_file"))))
    more = ""
    if admin:
        report.findings.extend(beside_admin(options))
    elif isinstance(options, Options):
        folder = f"data path {options.data_path} is writable" if options.data_path else (
            "no data path set: files go to the working folder of nsqc")
        counts = ((len(options.topics), "topic"), (len(options.channels), "channel"))
        tables = "".join(f", {number} {noun} table{'' if number == 1 else 's'}" for number, noun in counts if number)
        more = f"{tables}; {folder}"
    return conclude(file, report, more)


def in_access_file(path: str) -> Iterator[Finding]:
    """Errors in the access file that a config file names."""
    if not path:
        return
    from nsqc.access.rules import AccessError, read
    from nsqc.options.check import Finding

    try:
        read(path)
    except AccessError as error:
        yield Finding(0, True, str(error))


def beside_admin(options: OptionSet) -> Iterator[Finding]:
    """Faults in the other files that a config file of the admin server names."""
    from nsqc.admin.server import expiring, unreadable
    from nsqc.options.check import Finding
    from nsqc.options.servers import AdminOptions

    if isinstance(options, AdminOptions):
        for error in unreadable(options):
            yield Finding(0, True, str(error))
        for text in expiring(options):
            yield Finding(0, False, text)


def conclude(file: str, report: Report, more: str) -> int:
    """Prints the findings, or that the file is ok, and more; returns the exit code."""
    for line, fatal, text in report.findings:
        place = f"{file}:{line}" if line else file
        print_text(f"{place}: {'error' if fatal else 'warning'}: {mask(text)}")
    if any(fatal for _, fatal, _ in report.findings):
        return EXIT_REFUSED
    print_text(f"{file}: ok, {report.option_count} option{'' if report.option_count == 1 else 's'}{more}")
    return 0


@command.command("show", cls=takes_flags(FLAGS), context_settings=TAKES_FLAGS)
def show_command(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, values as a config file has them")] = False,
    lookupd: Lookupd = False,
    admin: Admin = False,
) -> int:
    """Print all values and their sources.

    Takes the flags of serve, including --config, and reads NSQC_* from the environment. Prints the values that the
    daemon would use.
    """
    declaration = server_of(lookupd, admin)
    try:
        words = parse_flags(context.args, declaration)
        options, sources, unknown = effective(declaration, words, from_environment(declaration))
    except HelpWanted:
        which = " --lookupd" if lookupd else " --admin" if admin else ""
        usage = f"Usage: nsqc config show{which} [--json] [FLAGS]"
        print_text(help_text(declaration).replace(f"Usage: {declaration.command} [FLAGS]", usage))
        return 0
    except FlagError as error:
        return refuse(f"{error} ({declaration.command} --help lists all flags)", EXIT_USAGE)
    except OptionError as error:
        return refuse(str(error))
    tables = (*options.topics, *options.channels) if isinstance(options, Options) else ()
    for warning in unknown.values():
        print(f"nsqc config: warning: {warning}", file=sys.stderr)
    print_text((as_json_text if as_json else as_table)(declaration, options, tables, sources))
    return 0


def as_json_text(declaration: Declaration[OptionSet], options: OptionSet, tables: tuple[RuleTable, ...],
                 sources: dict[str, str]) -> str:
    """Values as in a config file."""
    flags, keys = declaration.flags, declaration.keys
    values: dict[str, dict[str, object]] = {
        key: {"value": plain(flags[keys[key]].kind, options.value(keys[key])), "from": source}
        for key, source in sources.items()}
    for scope in BY_KEY.values():
        rules = {table.glob: {key: plain(scope.flags[key].kind, value) for key, value in table.values.items()}
                 for table in tables if table.of == scope.key}
        if rules:
            values[scope.key] = {"value": rules, "from": "config file"}
    return json.dumps(values, indent=2, ensure_ascii=False)


def as_table(declaration: Declaration[OptionSet], options: OptionSet, tables: tuple[RuleTable, ...],
             sources: dict[str, str]) -> str:
    """Key, value and source, under the titles of the groups."""
    keys = {name: key for key, name in declaration.keys.items()}
    values = {key: shown(declaration.flags[name].kind, options.value(name)) or '""' for name, key in keys.items()}
    key_width, value_width = max(map(len, values)), min(40, max(map(len, values.values())))
    lines: list[str] = []
    for group, names in declaration.by_group().items():
        lines += ["", f"{group}:"]
        for key in (keys[name] for name in names if name not in NO_KEY):
            lines.append(f"  {key:{key_width}}  {values[key]:{value_width}}  {sources[key]}")
    for table in tables:
        lines += ["", f"{table.title}:"]
        lines += [f"  {key:{key_width}}  {show(scope_of(table).flags[key].kind, value):{value_width}}  config file"
                  for key, value in table.values.items()]
    return "\n".join(lines[1:])


@command.command("init")
def init_command(
    file: Annotated[str, typer.Argument(help="the file to write; default: print it", metavar="FILE")] = "",
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing file")] = False,
    lookupd: Lookupd = False,
    admin: Admin = False,
) -> int:
    """Write a config file to start from.

    Contains every option with its meaning and default, commented out.
    """
    from nsqc.commands.pages.template import template

    text = template(server_of(lookupd, admin))
    if not file:
        print_text(text.rstrip("\n"))
        return 0
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        return refuse(f"{file} exists, --force overwrites it")
    except OSError as error:
        return refuse(f"cannot write {file} - {error.strerror}")
    print_text(f"{file} written")
    return 0
