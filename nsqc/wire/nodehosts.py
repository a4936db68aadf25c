"""The hosts of nodes that an operator permits, as options and access files have them: hosts, networks and globs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

_GLOB = re.compile(r"[A-Za-z0-9._*?-]+")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def ip_of(host: str) -> Address | None:
    """The IP address in a text; None: it is a name."""
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


class NodeHosts:
    """IP addresses, networks such as 10.0.0.0/8, and names or globs such as *.nsq.internal. A network covers no names:
    the owner of a name decides what it resolves to. A glob covers no addresses, except * alone. Raises ValueError."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._all = False
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._globs: list[str] = []
        for text in (word.strip() for each in texts for word in each.split(",")):
            if text == "*":
                self._all = True
                continue
            if not text:
                continue
            bare = text.removeprefix("[").removesuffix("]")
            try:
                self._networks.append(ipaddress.ip_network(bare, strict=False))
            except ValueError:
                if not _GLOB.fullmatch(text):
                    raise ValueError(f"{text!r} is not a host, a network such as 10.0.0.0/8, or a glob such as "
                                     "*.nsq.internal") from None
                self._globs.append(text.lower().removesuffix("."))

    def __bool__(self) -> bool:
        return bool(self._all or self._networks or self._globs)

    def cover(self, host: str) -> bool:
        """Whether a host is one of them."""
        if self._all:
            return True
        address = ip_of(host)
        if address is not None:
            return any(address in network for network in self._networks)
        name = host.lower().removesuffix(".")
        return any(fnmatchcase(name, glob) for glob in self._globs)
