"""The nodes that may be given the secret, and the addresses that may be connected to: anyone who reaches the TCP port
of a lookup server may announce any address.

The operator's own addresses are trusted, and those that --node-addresses covers. So are those for which a lookup
server's access file vouches: its answer is as trustworthy as the connection to it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from nsqc.admin.shapes import Producer
from nsqc.wire.nodehosts import Address, NodeHosts, ip_of

MOST_GONE = 1000        # addresses of each lookup server


class _Announced(NamedTuple):
    """What a lookup server says of an address."""

    authorised: bool
    source: str         # the host that announced it


class Trust:
    """Of one fleet. Addresses are HOST:PORT."""

    def __init__(self, named: Iterable[str], hosts: NodeHosts | None = None) -> None:
        """named: by the operator. hosts: of --node-addresses."""
        self._named = self._asked = frozenset(named)
        self._hosts = hosts or NodeHosts(())
        self._announced: dict[str, dict[str, _Announced]] = {}      # by lookup server and address

    def ask(self, lookupds: Iterable[str]) -> None:
        """Lookup servers that PUT /config names, in place of others: they may be asked, and are not trusted."""
        self._asked = frozenset(lookupds)
        self._announced.clear()

    def heard(self, lookupd: str, producers: Iterable[Producer], all_nodes: bool) -> None:
        """An answer of a lookup server. all_nodes: it lists all of its nodes."""
        found: dict[str, _Announced] = {}
        for each in producers:
            known, authorised = found.get(each.http), each.authorised and self.is_trusted(lookupd)
            # A stranger may announce the address of a node, too.
            if known is None or (authorised and not known.authorised):
                found[each.http] = _Announced(authorised, _host(each.remote_address))
        heard = self._announced.setdefault(lookupd, {})
        if all_nodes:
            # Those that are gone are asked for a while, as strangers.
            gone = [(address, each._replace(authorised=False)) for address, each in heard.items()
                    if address not in found]
            heard.clear()
            heard.update(gone[-MOST_GONE:])
        heard.update(found)

    def is_known(self, address: str) -> bool:
        """Whether the operator or a lookup server has named an address."""
        return address in self._named or any(address in heard for heard in self._announced.values())

    def is_trusted(self, address: str) -> bool:
        """Whether a node may be given the secret."""
        return address in self._named or self._hosts.cover(_host(address)) or any(
            heard[address].authorised for heard in self._announced.values() if address in heard)

    def withheld(self, address: str) -> str:
        """Why the node got no secret, and the remedy."""
        return (f"--node-auth-secret is not sent to {address}: a lookup server lists it, but anyone may announce an "
                f"address there. Permit it by --node-addresses={_host(address)}, or by [nodes] in the access file of "
                "nsqc lookupd")

    def why_unreachable(self, address: str, ip: str) -> str:
        """Why no connection to an endpoint of the node may be made; empty: it may. Addresses of this machine and its
        links reach services that the network cannot, so the announcement must come from there."""
        found = ip_of(ip)
        if found is None or not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
                                 ) or address in self._asked or self.is_trusted(address):
            return ""
        if any(_reaches(found, heard[address].source, lookupd)
               for lookupd, heard in self._announced.items() if address in heard):
            return ""
        return (f"{ip} is an address of this machine or link, and was not announced from there. If it is right, permit "
                f"it by --node-addresses={_host(address)}")


def _host(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _reaches(found: Address, source: str, lookupd: str) -> bool:
    """Whether a node at source means this machine, or its link, by an address that only these have."""
    its = ip_of(source)
    if found.is_loopback:
        return _is_own(source) and (its is None or not its.is_loopback or _is_own(_host(lookupd)))
    return found.is_link_local and its is not None and its.is_link_local


def _is_own(host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be bound."""
    address = ip_of(host)
    if address is None:
        return host.lower() in ("localhost", socket.gethostname().lower())
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
