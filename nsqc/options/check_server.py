"""Finds problems that would prevent a lookup server's or an admin server's start with a config file, without starting
it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqc.net.address import is_unix
from nsqc.options.admin import ADMIN, AdminOptions, unusable
from nsqc.options.check import Problem, Report, duplicates, listening, read
from nsqc.options.declared import Declaration, OptionSet, flag_name
from nsqc.options.lookupd import LOOKUPD, LookupdOptions
from nsqc.options.server import invalid


def examine_lookupd(path: str) -> Report[LookupdOptions]:
    """Reads a config file as a start of the lookup server would."""
    names = ("tcp_address", "http_address")
    return read(path, LOOKUPD, lambda options: (*invalid(LOOKUPD, options), *surroundings(options, LOOKUPD, names)),
                lambda options: ())


def examine_admin(path: str) -> Report[AdminOptions]:
    """Reads a config file as a start of the admin server would."""
    return read(path, ADMIN, lambda options: (*invalid(ADMIN, options), *unusable(options),
                                              *surroundings(options, ADMIN, ("http_address",))),
                lambda options: ())


def surroundings(options: OptionSet, declaration: Declaration[OptionSet], names: tuple[str, ...]) -> Iterator[Problem]:
    """Addresses that cannot be listened on."""
    for name in names:
        address = str(options.value(name))
        yield from (Problem(name, f"{flag_name(name)}: {reason}") for reason in refused(address))
    yield from duplicates(options, declaration.keys, names)


def refused(address: str) -> Iterable[str]:
    """Why the server would not listen there; unlike the daemon, it listens on no unix sockets."""
    try:
        if is_unix(address):
            return [f"address {address}: missing port in address"]
    except ValueError as error:
        return [str(error)]
    return listening(address)
