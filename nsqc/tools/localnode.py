"""The addresses of this machine's daemon, from its environment variables and its config file."""

from __future__ import annotations

import os
from typing import NamedTuple

from nsqc.client.address import checked_address
from nsqc.client.errors import BadAddress
from nsqc.tools.errors import UsageError

VARIABLE = "NSQC_CONFIG"
USUAL_FILE = "/etc/nsqc/nsqc.cfg"
# The daemon's options that matter here, with its defaults; they may also come from the environment
# (nsqc.options.environment).
DEFAULTS = {"tcp_address": "0.0.0.0:4150", "http_address": "0.0.0.0:4151", "https_address": "0.0.0.0:4152",
            "tls_cert": ""}
WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Local(NamedTuple):
    """TCP, HTTP and HTTPS address, HOST:PORT or a path; https is empty if the daemon has no certificate."""

    tcp: str
    http: str
    https: str


def local_node(path: str) -> Local:
    """Reads the given or the default config file. Raises UsageError if a given file cannot be used."""
    chosen = path or os.environ.get(VARIABLE) or (USUAL_FILE if os.access(USUAL_FILE, os.R_OK) else "")
    values: dict[str, object] = {**DEFAULTS}
    if chosen:
        # Imported here: not needed with --nsqd or without a file.
        from nsqc.options.declared import OptionError
        from nsqc.options.file import read_config

        try:
            values |= read_config(chosen)[0]
        except OptionError as error:
            raise UsageError(str(error)) from None
    if not path:
        values |= {name: os.environ[variable] for name in DEFAULTS
                   if (variable := f"NSQC_{name.upper()}") in os.environ}
    tcp, http, https = (reachable(str(values[name])) for name in ("tcp_address", "http_address", "https_address"))
    try:
        checked_address(tcp)
    except BadAddress as error:
        if chosen:
            raise UsageError(f"config file {chosen}: {error}") from None
    return Local(tcp, http, https if values["tls_cert"] else "")


def reachable(address: str) -> str:
    """Converts a listening address to one to connect to."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return address
    return f"{WILDCARDS.get(host.strip('[]'), host)}:{port}"
