"""Finds problems that would prevent or hinder a server's start with a config file, without starting one.

Nothing is bound, connected to, resolved or written.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nsqc.net import tls
from nsqc.net.address import is_unix, split_address
from nsqc.net.url import parse_server
from nsqc.options import file, rule_tables
from nsqc.options.declared import SERVE, Declaration, OptionError, Options, OptionSet, RuleTable, flag_name
from nsqc.options.reload import offered
from nsqc.options.rule_tables import BY_KEY

# ====================================================================== lines
# Finds the line of each setting in a config file.

def lines_of(text: str) -> Callable[..., int]:
    """line_of(key): the line, from 1, that sets a top-level key; 0: none. line_of(key, glob) and line_of(key, glob, of)
    find the table [key.glob] and a key in it; for other notations, the enclosing key."""
    lines = text.splitlines()

    def find(start: str, first: int = 0) -> int:
        form = re.compile(start)
        for number in range(first, len(lines)):
            # A matching line may be part of a longer value: then the text before it is incomplete.
            if form.match(lines[number]) and is_complete("\n".join(lines[:number])):
                return number + 1
        return 0

    def line_of(key: str, *below: str) -> int:
        if not below:
            return find(rf"\s*\[*\s*{written(key)}\s*[.=\]]")
        header = rf"\s*\[\s*{written(key)}\s*\.\s*{written(below[0])}\s*\]"
        table = find(header)
        if not table:
            return find(rf"\s*{written(key)}\s*\.\s*{written(below[0])}\s*[.=]") or line_of(key)
        if below[1:]:
            at = find(rf"\s*{written(below[1])}\s*[.=]", table)
            following = find(r"\s*\[", table)
            if at and (not following or at < following):
                return at
        return table

    return line_of


def written(key: str) -> str:
    """An expression for a key, with quotes or without."""
    forms = (key, f"'{key}'", json.dumps(key), json.dumps(key, ensure_ascii=False))
    return f"(?:{'|'.join(map(re.escape, forms))})"


def is_complete(text: str) -> bool:
    """Whether the text alone is a TOML file."""
    try:
        file.parse_toml(text)
    except file.TomlError:
        return False
    return True


# ====================================================================== check

LINE = re.compile(r"at line (\d+)")
NAME = re.compile(r"(?!.*\.sock(et)?$)[A-Za-z0-9.-]+")  # probably of a host, not of a unix socket
NUMBERS = re.compile(r"[0-9.]+")
LISTENING = ("tcp_address", "http_address", "https_address")
# Options with addresses to connect to, and their parsers.
REMOTE: dict[str, Callable[[str], object]] = {
    "lookupd_tcp_address": lambda text: split_address(text.removeprefix("tls://")),
    "auth_http_address": parse_server, "statsd_address": split_address,
}


class Finding(NamedTuple):
    """An error or a warning. line: in the file, from 1; 0: no particular line."""

    line: int
    fatal: bool
    text: str


class Report(NamedTuple):
    """options: those of the file, with defaults instead of wrong values; option_count: how many the file sets."""

    options: OptionSet
    option_count: int
    findings: list[Finding]


class Problem(NamedTuple):
    """A fault in the value of one option, given by its attribute name."""

    name: str
    text: str


def examine(path: str, declaration: Declaration[OptionSet] = SERVE) -> Report:
    """Reads a file as a start with these options would."""
    try:
        text = file.read_text(path)
    except OptionError as error:
        return Report(declaration.options(), 0, [Finding(0, True, str(error))])
    try:
        reading = file.interpret(file.parse_toml(text), declaration)
    except file.TomlError as error:
        line = LINE.search(str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        return Report(declaration.options(), 0, [Finding(number, True, f"{error}")])
    options = declaration.options().replace(**reading.values)
    line_of = lines_of(text)
    findings = [Finding(line_of(*place), True, problem) for place, problem in reading.problems]
    findings += [Finding(line_of(key), False, warning) for key, warning in reading.unknown.items()]
    findings += [Finding(line_of(key, table.glob), False, f"{table.title} has no effect: {reason}")
                 for key in BY_KEY for table, reason in rule_tables.ineffective(tables_of(reading, key))]
    keys = {name: key for key, name in declaration.keys.items()}
    problems = [(True, name, problem) for faults in (declaration.faults(options), options.unusable(),
                                                     surroundings(options, declaration)) for name, problem in faults]
    warnings = [*expiring(options), *(ineffective(options) if isinstance(options, Options) else ())]
    problems += [(False, name, problem) for name, problem in warnings]
    for fatal, name, problem in problems:
        line_number = line_of(keys[name]) if name in reading.values else 0
        findings.append(Finding(line_number, fatal, problem.replace(flag_name(name), keys[name])))
    return Report(options, len(reading.values.keys() - BY_KEY.keys()), sorted(findings))


def tables_of(reading: file.Reading, key: str) -> tuple[RuleTable, ...]:
    """The tables with rules below a key of a file."""
    tables = reading.values.get(key)
    return tuple(one for one in tables if isinstance(one, RuleTable)) if isinstance(tables, tuple) else ()


# ---------------------------------------------------------------------- the machine


def surroundings(options: OptionSet, declaration: Declaration[OptionSet]) -> Iterator[Problem]:
    """Values that do not fit this machine."""
    names = [name for name in LISTENING if name in declaration.flags]
    for name in names:
        address = str(options.value(name))
        if address or declaration is not SERVE:     # of the daemon's, an empty address is none to listen on
            yield from (Problem(name, f"{flag_name(name)}: {reason}")
                        for reason in listening(address, declaration is SERVE))
    if not isinstance(options, Options):
        yield from duplicates(options, declaration, names)
        yield from encryption(options)
        return
    yield from duplicates(options, declaration, names if options.offers_tls else names[:2])
    yield from unreachable(options)
    yield from encryption(options)
    if reason := unwritable(options.data_path):
        yield Problem("data_path", f"--data-path: {reason}")


def unreachable(options: Options) -> Iterator[Problem]:
    """Malformed addresses to connect to: they could never work."""
    for name, parse in REMOTE.items():
        value = options.value(name)
        for address in value if isinstance(value, tuple) else [value] if value else []:
            try:
                parse(str(address))
            except ValueError as error:
                yield Problem(name, f"{flag_name(name)}: {error}")


def listening(address: str, takes_unix: bool) -> Iterator[str]:
    """Why an address cannot be listened on. takes_unix: the server listens on unix sockets, too."""
    try:
        if not is_unix(address):
            host = address.rpartition(":")[0]
            if any(map(str.isspace, host)) or (NUMBERS.fullmatch(host) and not is_ipv4(host)):
                yield f"address {address}: invalid host"
            return
    except ValueError as error:
        yield str(error)
        return
    if not takes_unix:
        yield f"address {address}: missing port in address"
        return
    if NAME.fullmatch(address):
        # The daemon would create a unix socket of that name in its working folder, which is hardly ever intended.
        yield f"address {address}: missing port in address (./{address} is the path of a unix socket)"
        return
    path = Path(address)
    if reason := unwritable(str(path.parent)):
        yield f"{address} is the path of a unix socket, and {reason}"
    elif path.exists() and not path.is_socket():
        yield f"{address} exists and is not a unix socket"


def is_ipv4(host: str) -> bool:
    """Whether this is an IPv4 address of four numbers."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def duplicates(options: OptionSet, declaration: Declaration[OptionSet], names: list[str]) -> Iterator[Problem]:
    """Addresses to listen on that another option has, too; port 0 is any port."""
    keys = {name: key for key, name in declaration.keys.items()}
    owners: dict[str, str] = {}
    for name in names:
        address = str(options.value(name))
        owner = owners.setdefault(address, name)
        if address and owner != name and not address.endswith(":0"):
            yield Problem(name, f"{flag_name(name)}: address {address} is that of {keys[owner]}")


def ineffective(options: Options) -> Iterator[Problem]:
    """Values without effect."""
    if options.is_topology_aware and not (options.topology_zone or options.topology_region):
        yield Problem("enable_experiment", "enable_experiment has no effect without topology_zone and topology_region")
    if options.tls_root_ca_file and not options.offers_tls:
        yield Problem("tls_root_ca_file", "tls_root_ca_file has no effect without tls_cert and tls_key")


def expiring(options: OptionSet) -> Iterator[Problem]:
    """Certificates that have expired, or soon will."""
    if settings := offered(options):
        for date in tls.read_dates(tls.files_of(settings)):
            if text := date.concern(time.time()):
                yield Problem("tls_cert" if date.path == settings.cert else "tls_root_ca_file", text)


def unwritable(path: str) -> str:
    """Why files cannot be written in a folder; empty: they can."""
    folder = Path(path or ".")
    if not folder.is_dir():
        return f"{folder} is not a folder" if folder.exists() else f"folder {folder} does not exist"
    return "" if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else f"folder {folder} cannot be read and written"


def encryption(options: OptionSet) -> Iterator[Problem]:
    """Why the options of TLS, or the files they name, cannot be used."""
    try:
        settled = options.settled()
    except OptionError as error:
        assert isinstance(options, Options)
        if bool(options.tls_cert) != bool(options.tls_key):
            text = str(error).replace("--tls-cert", "tls_cert").replace("--tls-key", "tls_key")
            yield Problem("tls_cert" if options.tls_cert else "tls_key", text)
        else:
            yield Problem("tls_required" if options.tls_required else "tls_client_auth_policy", str(error))
        return
    # Otherwise unusable() has reported the missing one.
    if (settings := offered(settled)) and settings.cert and settings.key:
        try:
            tls.build_context(settings)
        except tls.TlsError as error:
            names = ("tls_cert", "tls_key", "tls_root_ca_file")
            paths = settings.cert, settings.key, settings.root_ca_file
            named = [name for name, path in zip(names, paths, strict=True) if path and path in str(error)]
            yield Problem((named or names)[0], str(error))
