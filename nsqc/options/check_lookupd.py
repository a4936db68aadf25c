"""What would stop a lookup server that starts with a config file, found without starting one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqc.net.address import is_unix
from nsqc.options.check import Problem, Report, duplicates, listening, read
from nsqc.options.declared import flag_name, unknown_choice
from nsqc.options.lookupd import LOOKUPD, LookupdOptions

LISTENING = ("tcp_address", "http_address")


def examine(path: str) -> Report[LookupdOptions]:
    """Reads a config file as a start would."""
    return read(path, LOOKUPD, lambda options: (*LOOKUPD.out_of_range(options), *unknown_choice(options),
                                           *surroundings(options)),
                lambda options: ())


def surroundings(options: LookupdOptions) -> Iterator[Problem]:
    """Addresses that cannot be listened on."""
    for name in LISTENING:
        address = str(options.value(name))
        yield from (Problem(name, f"{flag_name(name)}: {reason}") for reason in refused(address))
    yield from duplicates(options, LOOKUPD.keys, LISTENING)


def refused(address: str) -> Iterable[str]:
    """Why the server would not listen there; unlike the daemon, it listens on no unix sockets."""
    try:
        if is_unix(address):
            return [f"address {address}: missing port in address"]
    except ValueError as error:
        return [str(error)]
    return listening(address)
