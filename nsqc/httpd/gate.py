"""Decides which requests reach a handler. For all routes, refuses web pages of other origins, unknown names of this
server, clients of other machines, and clients without a grant in the access file.

A browser sends requests for any page that its user opens. So calls that change something are refused for pages of other
origins. DNS rebinding makes a page's own name resolve to this server: then its requests have that name as their Host.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from nsqc.access.needs import OPEN
from nsqc.httpd.reply import ApiError, Handler, Request, Route
from nsqc.net.address import is_loopback

if TYPE_CHECKING:
    from nsqc.access.keeper import Account, Subject
    from nsqc.access.needs import Need
    from nsqc.httpd.permits import Permits, Recorder
    from nsqc.options.declared import Options
    from nsqc.options.servers import AdminOptions, LookupdOptions


# ====================================================================== caller
# The client of one HTTP connection.

class Doing(NamedTuple):
    """A permitted call, with its topic and channel."""

    subject: Subject
    need: Need
    topic: str
    channel: str


class Caller:
    """The client's address, its account, and its last permitted call."""

    __slots__ = ("account", "doing", "is_local", "who")

    def __init__(self, host: str, address: str = "", tls: bool = False, common_name: str = "") -> None:
        """host: its address; empty for a unix socket. address: HOST:PORT. common_name: of its certificate; empty
        without one."""
        self.who = (address, host, tls, common_name)    # as nsqc.access.keeper.Who
        self.is_local = not host or is_loopback(host)
        self.account: Account | None = None     # counts the connection
        self.doing: Doing | None = None         # its last call, with access rules

    def use(self, account: Account | None) -> str:
        """Has an account count the connection; returns why that is refused, or an empty text."""
        if account is self.account:
            return ""
        if account is not None and (reason := account.enter()):
            return reason
        self.leave()
        self.account = account
        return ""

    def leave(self) -> None:
        """The connection has ended."""
        if self.account is not None:
            self.account.leave()
            self.account = None


# ====================================================================== gate

_READING = frozenset((b"GET", b"HEAD", b"OPTIONS"))     # methods that change nothing
_SHOWN = 100        # characters of a Host
_ALL = "all"        # of --http-extended-api


class Gate:
    """The checks of one server."""

    def __init__(self, options: Options | LookupdOptions | AdminOptions, permits: Permits | None = None,
                 recorder: Recorder | None = None) -> None:
        self.permits = permits      # for the access file; None: no file
        self._recorder = recorder   # for the audit log; None: no log
        self.set_options(options)

    def set_options(self, options: Options | LookupdOptions | AdminOptions) -> None:
        """Applies to requests from now on."""
        self._is_extended = options.http_extended_api == _ALL
        self._hosts = {"localhost", socket.gethostname().lower(), options.broadcast_address.lower().strip("[]")}
        self._globs = [name.lower() for name in options.http_allowed_hosts]

    def admit(self, route: Route, request: Request, caller: Caller) -> Route:
        """The route, or one that refuses the request."""
        if route.need is OPEN:
            return route
        admitted = self._admitted(route, request, caller)
        if self._recorder is None or not route.need.grants:
            return admitted
        return self._recorder.recorded(admitted, route.need)

    def _admitted(self, route: Route, request: Request, caller: Caller) -> Route:
        need = route.need
        if request.foreign and request.method not in _READING:
            return _FOREIGN
        host = (request.host or b"").decode("latin-1")
        # A browser always sends a Host; a program may leave it out.
        if (request.from_page or (need.own and host)) and not self._knows(host):
            return _UNKNOWN_HOST
        if self.permits is not None:
            return self.permits.admit(route, request, caller)
        if need.local and not self._is_extended and not caller.is_local:
            return _NOT_LOCAL
        return route

    def _knows(self, host: str) -> bool:
        """Whether a Host is a name of this server, or an address."""
        name = host_name(host)
        return name in self._hosts or is_address(name) or any(fnmatchcase(name, glob) for glob in self._globs)


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        return address.lower() if not port or (port[0] == ":" and port[1:].isdigit()) else host
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host.rstrip(":")).lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether this is an IP address, which DNS rebinding cannot use."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False


# ---------------------------------------------------------------------- refusals


def _refusal(reason: str, text: Callable[[Request], str]) -> Route:
    """reason: for the log; text: for the client."""
    # Any: a site of any program
    def refuse(site: Any, request: Request) -> NoReturn:
        site.log.warn("refused %s: %s", request, reason, kind=reason)
        raise ApiError(403, text(request))

    handler: Handler = refuse
    return Route(handler, OPEN)


def _unknown_host(request: Request) -> str:
    name = host_name((request.host or b"").decode("latin-1"))[:_SHOWN]
    return (f"HOST_NOT_ALLOWED - {name!r} is not a known name of this server: use its address, or start it with "
            f"--http-allowed-hosts={name}")


_FOREIGN = _refusal("it comes from a web page of another origin",
                    lambda request: "FOREIGN_ORIGIN - web pages of other origins may not change anything")
_UNKNOWN_HOST = _refusal("its Host is unknown, see --http-allowed-hosts", _unknown_host)
_NOT_LOCAL = _refusal(
    "it comes from another machine, see --http-extended-api",
    lambda request: "NOT_LOCAL - this call is for clients on the node's own machine: start it with "
                    "--http-extended-api=all to open it to all, or with --access-file to say to whom")
