"""The addresses of the daemon on this machine, from its config file."""

from __future__ import annotations

import os
from typing import NamedTuple

from nsqc.tools.errors import UsageError

VARIABLE = "NSQC_CONFIG"
USUAL_FILE = "/etc/nsqc/nsqc.cfg"
WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Local(NamedTuple):
    """TCP, HTTP and HTTPS address, HOST:PORT or a path; https is empty if the daemon has no certificate."""

    tcp: str = "127.0.0.1:4150"
    http: str = "127.0.0.1:4151"
    https: str = ""


def local_node(path: str) -> Local:
    """By a config file, or by the usual one. Raises UsageError if a file that was asked for cannot be used."""
    chosen = path or os.environ.get(VARIABLE, "")
    if not chosen:
        if not os.access(USUAL_FILE, os.R_OK):
            return Local()
        chosen = USUAL_FILE
    # Imported here: with --nsqd or without a file none of the options is needed.
    from nsqc.client.address import checked_address
    from nsqc.client.errors import BadAddress
    from nsqc.options.declared import OptionError, Options
    from nsqc.options.file import read_config

    try:
        values, _ = read_config(chosen)
    except OptionError as error:
        raise UsageError(str(error)) from None
    options = Options()
    addresses = [reachable(str(values.get(name, options.value(name))))
                 for name in ("tcp_address", "http_address", "https_address")]
    try:
        checked_address(addresses[0])
    except BadAddress as error:
        raise UsageError(f"config file {chosen}: {error}") from None
    return Local(addresses[0], addresses[1], addresses[2] if values.get("tls_cert") else "")


def reachable(address: str) -> str:
    """An address to connect to, for one that is listened on."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return address
    return f"{WILDCARDS.get(host.strip('[]'), host)}:{port}"
