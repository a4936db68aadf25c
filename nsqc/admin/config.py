"""/config/OPTION: nsqadmin's options while it runs."""

from __future__ import annotations

import ipaddress

from nsqc.admin.site import MOST_BODY, AdminSite
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request
from nsqc.log import LEVELS
from nsqc.log.secrets import mask_address
from nsqc.net.remote import split_address
from nsqc.options.admin import ADMIN
from nsqc.wire.gojson import GoJSONError, decode_strings

LOOKUPDS = "nsqlookupd_http_addresses"
SECRET = ("node_auth_secret",)


def get(site: AdminSite, request: Request) -> object:
    """One option by its key in the config file."""
    _check(site, request)
    return _value(site, request.param)


def put(site: AdminSite, request: Request) -> object:
    """Changes log_level or nsqlookupd_http_addresses; returns the new value."""
    _check(site, request)
    if site.options.read_only:
        raise ApiError(403, "READ_ONLY")
    if not request.body or max(request.length, len(request.body)) > MOST_BODY:
        raise ApiError(413, "INVALID_VALUE")
    if request.param == "log_level":
        level = LEVELS.get(request.body.decode("latin-1").strip().lower())
        if level is None:
            raise ApiError(400, "INVALID_VALUE")
        site.log.level = level
    elif request.param == LOOKUPDS:
        site.fleet.use_lookupds(_addresses(request.body))
    else:
        raise ApiError(400, "INVALID_OPTION")
    return _value(site, request.param)


def _check(site: AdminSite, request: Request) -> None:
    network = site.options.allow_config_from_cidr
    host = request.caller.who[1]
    if network and host:
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if (mapped or address) not in ipaddress.ip_network(network, strict=False):
            raise ApiError(403, "FORBIDDEN")


def _value(site: AdminSite, key: str) -> object:
    if key == "log_level":
        return site.log.level
    if key == LOOKUPDS:
        return [mask_address(address) for address in site.fleet.lookupds]
    name = ADMIN.keys.get(key)
    if name is None or name in SECRET:
        raise ApiError(400, "INVALID_OPTION")
    value = site.options.value(name)
    if isinstance(value, tuple):
        return [mask_address(str(item)) for item in value]
    return mask_address(value) if isinstance(value, str) else value


def _addresses(body: bytes) -> tuple[str, ...]:
    try:
        addresses = tuple(decode_strings(body))
        for address in addresses:
            split_address(address)
    except (GoJSONError, ValueError):
        raise ApiError(400, "INVALID_VALUE") from None
    return addresses
