"""What would stop, or hinder, a daemon that starts with a config file; found without starting one.

Nothing is bound, connected to, resolved or written.
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nsqc.net import tls
from nsqc.net.address import is_unix
from nsqc.options import file
from nsqc.options.declared import KEYS, OptionError, Options, flag_name, out_of_range
from nsqc.options.tls import is_offered, settle
from nsqc.peers.auth import parse_server
from nsqc.peers.dial import split_address

LINE = re.compile(r"at line (\d+)")
NAME = re.compile(r"(?!.*\.sock(et)?$)[A-Za-z0-9.-]+")  # of a host, perhaps, and of no unix socket
NUMBERS = re.compile(r"[0-9.]+")
LISTENING = ("tcp_address", "http_address", "https_address")
# Options that hold addresses to connect to, and what reads one.
REACHED: dict[str, Callable[[str], Any]] = {
    "lookupd_tcp_address": split_address, "auth_http_address": parse_server, "statsd_address": split_address,
}


class Finding(NamedTuple):
    """One thing that is wrong. line: of the file, from 1; 0 where it is none in particular."""

    line: int
    fatal: bool
    text: str


class Report(NamedTuple):
    """options: as the file has them, what is wrong left at its default; count: those that the file sets."""

    options: Options
    count: int
    findings: list[Finding]


def examine(path: str) -> Report:
    """Reads a config file as a start would."""
    try:
        text = file.read_text(path)
    except OptionError as error:
        return Report(Options(), 0, [Finding(0, True, str(error))])
    try:
        reading = file.interpret(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line = LINE.search(str(error))
        return Report(Options(), 0, [Finding(int(line[1]) if line else text.count("\n") + 1, True, f"{error}")])
    options = Options(**reading.found)
    at = lines_of(text)
    findings = [Finding(at(key), True, told) for key, told in reading.problems]
    findings += [Finding(at(key), False, f"unknown key {key!r} is passed over") for key in reading.unknown]
    keys = {name: key for key, name in KEYS.items()}
    wrong = [(True, *found) for found in (*out_of_range(options), *surroundings(options))]
    for fatal, name, told in wrong + [(False, *found) for found in idle(options)]:
        known = name in reading.found
        findings.append(Finding(at(keys[name]) if known else 0, fatal, told.replace(flag_name(name), keys[name])))
    return Report(options, len(reading.found), sorted(findings))


def lines_of(text: str) -> Callable[[str], int]:
    """at(key): the line on which a top-level key is set."""
    lines = text.splitlines()

    def at(key: str) -> int:
        start = re.compile(rf"\s*\[*\s*(['\"]?){re.escape(key)}\1\s*[.=\]]")
        for number, line in enumerate(lines):
            # A line that looks like it may lie in a longer value: then what stands before it is no whole file.
            if start.match(line) and is_whole("\n".join(lines[:number])):
                return number + 1
        return 0

    return at


def is_whole(text: str) -> bool:
    """Whether the text is a TOML file by itself."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


# ---------------------------------------------------------------------- what lies around


def surroundings(options: Options) -> Iterator[tuple[str, str]]:
    """Attribute name and a line for the operator, of each value that does not fit this machine."""
    for name in LISTENING:
        if address := getattr(options, name):
            yield from ((name, f"{flag_name(name)}: {told}") for told in listening(address))
    yield from same_place(options)
    yield from unreachable(options)
    yield from encryption(options)
    if told := folder(options.data_path):
        yield "data_path", f"--data-path: {told}"


def unreachable(options: Options) -> Iterator[tuple[str, str]]:
    """Attribute name and a line for the operator, of each address to connect to that is none."""
    for name, read in REACHED.items():
        values = getattr(options, name)
        for address in values if isinstance(values, tuple) else [values] if values else []:
            try:
                read(address)
            except ValueError as error:
                yield name, f"{flag_name(name)}: {error}"


def listening(address: str) -> Iterator[str]:
    """Why an address cannot be listened on."""
    try:
        if not is_unix(address):
            host = address.rpartition(":")[0]
            if any(map(str.isspace, host)) or (NUMBERS.fullmatch(host) and not is_ipv4(host)):
                yield f"address {address}: invalid host"
            return
    except ValueError as error:
        yield str(error)
        return
    if NAME.fullmatch(address):
        # The daemon would make a socket of that name in the folder it is started in, which hardly anybody wants.
        yield f"address {address}: missing port in address (./{address} is the path of a unix socket)"
        return
    path = Path(address)
    if told := folder(str(path.parent)):
        yield f"{address} is the path of a unix socket, and {told}"
    elif path.exists() and not path.is_socket():
        yield f"{address} is there already and no unix socket"


def is_ipv4(host: str) -> bool:
    """Whether this is an address of four numbers."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def same_place(options: Options) -> Iterator[tuple[str, str]]:
    """An address to listen on that another option has, too. Port 0 stands for any."""
    names = LISTENING if is_offered(options) else LISTENING[:2]
    taken: dict[str, str] = {}
    for name in names:
        address = getattr(options, name)
        other = taken.setdefault(address, name)
        if address and other != name and not address.endswith(":0"):
            keys = {known: key for key, known in KEYS.items()}
            yield name, f"{flag_name(name)}: address {address} is that of {keys[other]}"


def idle(options: Options) -> Iterator[tuple[str, str]]:
    """What is set and has no effect."""
    if options.tls_root_ca_file and not is_offered(options):
        yield "tls_root_ca_file", "tls_root_ca_file has no effect without tls_cert and tls_key"


def folder(path: str) -> str:
    """Why files cannot be written in a folder; empty: they can."""
    where = Path(path or ".")
    if not where.is_dir():
        return f"{where} is no folder" if where.exists() else f"folder {where} does not exist"
    return "" if os.access(where, os.R_OK | os.W_OK | os.X_OK) else f"folder {where} cannot be read and written"


def encryption(options: Options) -> Iterator[tuple[str, str]]:
    """Why the options of TLS, or the files they name, cannot be used."""
    try:
        settled = settle(options)
    except OptionError as error:
        if bool(options.tls_cert) != bool(options.tls_key):
            text = str(error).replace("--tls-cert", "tls_cert").replace("--tls-key", "tls_key")
            yield "tls_cert" if options.tls_cert else "tls_key", text
        else:
            yield "tls_required" if options.tls_required else "tls_client_auth_policy", str(error)
        return
    if is_offered(settled):
        try:
            tls.build_context(settled)
        except tls.TlsError as error:
            files = ("tls_cert", "tls_key", "tls_root_ca_file")
            told = [name for name in files if getattr(options, name) and getattr(options, name) in str(error)]
            yield (told or files)[0], str(error)
