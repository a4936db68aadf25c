"""The addresses of this machine's daemon, from its environment variables and its config file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from nsqc.tools.errors import UsageError

VARIABLE = "NSQC_CONFIG"
# The daemon's options that may come from the environment (nsqc.options.environment).
OPTIONS = {name: f"NSQC_{name.upper()}" for name in ("tcp_address", "http_address", "https_address", "tls_cert")}
USUAL_FILE = "/etc/nsqc/nsqc.cfg"
WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Local(NamedTuple):
    """TCP, HTTP and HTTPS address, HOST:PORT or a path; https is empty if the daemon has no certificate."""

    tcp: str = "127.0.0.1:4150"
    http: str = "127.0.0.1:4151"
    https: str = ""


def local_node(path: str) -> Local:
    """Reads the given or the default config file. Raises UsageError if a given file cannot be used."""
    chosen = path or os.environ.get(VARIABLE, "")
    given = {} if path else {name: os.environ[variable] for name, variable in OPTIONS.items() if variable in os.environ}
    if not chosen:
        if not os.access(USUAL_FILE, os.R_OK):
            return in_environment(given)
        chosen = USUAL_FILE
    # Imported here: not needed with --nsqd or without a file.
    from nsqc.client.address import checked_address
    from nsqc.client.errors import BadAddress
    from nsqc.options.declared import OptionError, Options
    from nsqc.options.file import read_config

    try:
        values, _ = read_config(chosen)
    except OptionError as error:
        raise UsageError(str(error)) from None
    values |= given
    options = Options()
    addresses = [reachable(str(values.get(name, options.value(name))))
                 for name in ("tcp_address", "http_address", "https_address")]
    try:
        checked_address(addresses[0])
    except BadAddress as error:
        raise UsageError(f"config file {chosen}: {error}") from None
    return Local(addresses[0], addresses[1], addresses[2] if values.get("tls_cert") else "")


def in_environment(given: Mapping[str, str]) -> Local:
    """Without a config file: the defaults, overridden by the daemon's variables."""
    usual = Local()
    tcp = reachable(given.get("tcp_address", usual.tcp))
    http = reachable(given.get("http_address", usual.http))
    return Local(tcp, http, reachable(given.get("https_address", "0.0.0.0:4152")) if given.get("tls_cert") else "")


def reachable(address: str) -> str:
    """Converts a listening address to one to connect to."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return address
    return f"{WILDCARDS.get(host.strip('[]'), host)}:{port}"
