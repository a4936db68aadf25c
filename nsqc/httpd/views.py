"""The daemon's own state: /ping, /info, /config."""

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc import NSQD_VERSION
from nsqc.broker.stats import whole
from nsqc.httpd.app import App
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request
from nsqc.log import LEVELS
from nsqc.log.secrets import mask_address
from nsqc.options.declared import OptionError
from nsqc.options.option import Value
from nsqc.wire.gojson import GoJSONError, decode_strings

_NULL = Raw(b"null")


class Info(Struct, frozen=True, gc=False):
    """The answer of /info; start_time in unix seconds, the other times in nanoseconds, sizes in bytes."""

    version: str
    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    start_time: int
    max_heartbeat_interval: int
    max_output_buffer_size: int
    max_output_buffer_timeout: int
    max_deflate_level: int
    topology_zone: str | UnsetType = UNSET
    topology_region: str | UnsetType = UNSET
    https_port: int | UnsetType = UNSET     # nsqc's own: clients with a secret use it


def ping(app: App, request: Request) -> str:
    """OK, or 500 and the reason."""
    health = app.broker.health()
    if health != "OK":
        raise ApiError(500, health)
    return health


def info(app: App, request: Request) -> Info:
    """Version, addresses and limits; the ports are -1 on unix sockets."""
    options = app.settings.now
    return Info(
        version=NSQD_VERSION,
        broadcast_address=options.broadcast_address,
        hostname=app.info["hostname"],
        http_port=next((server.port for server in app.servers if server.name == "HTTP"), -1),
        tcp_port=app.info["tcp_port"],
        start_time=int(app.start_time),
        max_heartbeat_interval=options.max_heartbeat_interval,
        max_output_buffer_size=options.max_output_buffer_size,
        max_output_buffer_timeout=options.max_output_buffer_timeout,
        max_deflate_level=options.max_deflate_level,
        https_port=app.https_port or UNSET,
        **options.topology,
    )


def get_config(app: App, request: Request) -> object:
    """One option, by its key in a config file, in Go's JSON form and without the passwords of addresses."""
    try:
        value = app.settings.now.by_config_name(request.param)
    except KeyError:
        raise ApiError(400, "INVALID_OPTION") from None
    if request.param in app.null_options and not value:
        return _NULL
    if isinstance(value, list):
        return [mask_address(item) if isinstance(item, str) else whole(item) for item in value]
    return mask_address(value) if isinstance(value, str) else value


def put_config(app: App, request: Request) -> object:
    """Changes log_level or nsqlookupd_tcp_addresses while the daemon runs; returns the new value."""
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body or len(request.body) > app.settings.now.max_msg_size:
        raise ApiError(413, "INVALID_VALUE")
    if request.param == "log_level":
        fields: dict[str, Value] = {"log_level": _log_level(request.body)}
        is_null = False
    elif request.param == "nsqlookupd_tcp_addresses":
        addresses = _addresses(request.body)
        fields = {"lookupd_tcp_address": addresses or ()}
        is_null = addresses is None
    else:
        raise ApiError(400, "INVALID_OPTION")
    try:
        app.settings.change(**fields)
    except OptionError:
        raise ApiError(400, "INVALID_VALUE") from None
    (app.null_options.add if is_null else app.null_options.discard)(request.param)
    return get_config(app, request)


def _log_level(body: bytes) -> int:
    level = LEVELS.get(body.decode("latin-1").lower())
    if level is None:
        raise ApiError(400, "INVALID_VALUE")
    return level


def _addresses(body: bytes) -> tuple[str, ...] | None:
    """None for null, which nsqd returns as null from then on."""
    try:
        addresses = tuple(decode_strings(body))
    except GoJSONError:
        raise ApiError(400, "INVALID_VALUE") from None
    return None if body.strip() == b"null" else addresses
