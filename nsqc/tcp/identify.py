"""IDENTIFY: negotiates with a client, and builds the answer. Nothing here changes a connection."""

# No `from __future__ import annotations`: kinds() reads the types.
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from nsqc import NSQD_VERSION
from nsqc.log import Log
from nsqc.options.declared import Options
from nsqc.options.values import TLS_NOT_REQUIRED
from nsqc.tcp.errors import ClientError
from nsqc.wire.codecs import CODECS
from nsqc.wire.gojson import BOOL, INT32, INT64, STRING, GoJSONError, decode_struct

if TYPE_CHECKING:
    from nsqc.access.authority import Grant

OK = b"OK"
DEFAULT_DEFLATE_LEVEL = 6
MIN_MS = 1000
MIN_BUFFER_BYTES = 64
NS_PER_MS = 1_000_000

SAME_ZONE, SAME_REGION, ELSEWHERE = range(3)  # distances of consumers
NSQD, TOPOLOGY, OWN = "nsqd", "topology", "own"  # origin of a field: nsqd 1.3.0, newer versions, nsqc alone


class Field(NamedTuple):
    """A field of IDENTIFY's body. kind: Go's, in nsqc.wire.gojson; of: its origin."""

    kind: int
    of: str = NSQD


class Wanted(msgspec.Struct, gc=False):
    """The body, declared once; None: not sent by the client."""

    client_id: Annotated[str | None, Field(STRING)] = None
    hostname: Annotated[str | None, Field(STRING)] = None
    heartbeat_interval: Annotated[int | None, Field(INT64)] = None
    output_buffer_size: Annotated[int | None, Field(INT64)] = None
    output_buffer_timeout: Annotated[int | None, Field(INT64)] = None
    feature_negotiation: Annotated[bool | None, Field(BOOL)] = None
    tls_v1: Annotated[bool | None, Field(BOOL)] = None
    deflate: Annotated[bool | None, Field(BOOL)] = None
    deflate_level: Annotated[int | None, Field(INT64)] = None
    snappy: Annotated[bool | None, Field(BOOL)] = None
    sample_rate: Annotated[int | None, Field(INT32)] = None
    user_agent: Annotated[str | None, Field(STRING)] = None
    msg_timeout: Annotated[int | None, Field(INT64)] = None
    topology_zone: Annotated[str | None, Field(STRING, TOPOLOGY)] = None
    topology_region: Annotated[str | None, Field(STRING, TOPOLOGY)] = None
    # Only for clients that ask for them, so that the answer to others is nsqd's.
    publish_ids: Annotated[bool | None, Field(BOOL, OWN)] = None
    deferred_batches: Annotated[bool | None, Field(BOOL, OWN)] = None
    tls_required: Annotated[bool | None, Field(BOOL, OWN)] = None


def kinds(*groups: str) -> dict[str, int]:
    """JSON names and kinds of the fields from these origins."""
    fields = {name: annotation.__metadata__[0] for name, annotation in Wanted.__annotations__.items()}
    return {name: field.kind for name, field in fields.items() if field.of in groups}


KINDS, ALL_KINDS = kinds(NSQD, OWN), kinds(NSQD, TOPOLOGY, OWN)


class Settings(msgspec.Struct, gc=False, frozen=True):
    """A session's settings after IDENTIFY. Times in milliseconds, 0 for none."""

    client_id: str
    hostname: str
    user_agent: str
    heartbeat_ms: int
    output_buffer_size: int
    output_buffer_timeout_ms: int
    sample_rate: int
    msg_timeout_ms: int
    topology: dict[str, str]  # as shown in statistics; empty if not used
    distance: int


class Layers(msgspec.Struct, gc=False, frozen=True):
    """The layers to add after the reply: TLS, and inside it a codec: deflate, snappy, or empty for none."""

    tls: bool
    codec: str
    level: int  # of deflate


class Agreement(NamedTuple):
    """The result of a negotiation, which Session.apply() applies."""

    settings: Settings
    reply: bytes
    layers: Layers | None  # None: no change
    publish_ids: bool = False  # publishes may have an id
    deferred_batches: bool = False  # the client may use DMPUB


class Current(NamedTuple):
    """A client's settings before the negotiation: missing fields keep them. Times in milliseconds."""

    heartbeat_ms: int
    output_buffer_size: int
    output_buffer_timeout_ms: int
    msg_timeout_ms: int
    encrypted: bool
    compressed: bool


class Answer(msgspec.Struct, gc=False):
    """The reply to a client that negotiates features; keys in nsqd's order."""

    max_rdy_count: int
    version: str
    max_msg_timeout: int
    msg_timeout: int
    tls_v1: bool
    deflate: bool
    deflate_level: int
    max_deflate_level: int
    snappy: bool
    sample_rate: int
    auth_required: bool
    output_buffer_size: int
    output_buffer_timeout: int
    topology_region: str | UnsetType = UNSET
    topology_zone: str | UnsetType = UNSET
    # nsqc's own, only for clients that ask for them.
    publish_ids: bool | UnsetType = UNSET
    deferred_batches: bool | UnsetType = UNSET
    tls_required: bool | UnsetType = UNSET


encoder = msgspec.json.Encoder()
MOST_TEXT = 1024    # characters


def negotiate(body: bytes, options: Options, current: Current, log: Log, address: str) -> Agreement:
    """Evaluates an IDENTIFY body; changes nothing. Raises ClientError."""
    try:
        # Any: each value has the kind of its field
        fields: dict[str, Any] = decode_struct(body, ALL_KINDS if options.topology else KINDS)
        wanted = Wanted(**fields)
    except GoJSONError as error:
        log.error("[%s] - IDENTIFY failed to decode JSON body - %s", address, error)
        raise ClientError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    log.info("[%s] IDENTIFY: %s", address, wanted)
    settings = settle(wanted, options, current)
    if not wanted.feature_negotiation:
        return Agreement(settings, OK, None)
    layers = agree(wanted, options, current)
    return Agreement(settings, encoder.encode(answer(options, settings, layers, wanted, current.encrypted)),
                     layers if layers.tls or layers.codec else None, bool(wanted.publish_ids),
                     bool(wanted.deferred_batches))


def agree(wanted: Wanted, options: Options, current: Current) -> Layers:
    """TLS and compression, as far as wanted and offered. Raises ClientError."""
    tls = bool(wanted.tls_v1 and (options.tls_cert or options.tls_key))
    codecs = [name for name in CODECS if getattr(wanted, name) and getattr(options, name)]
    if len(codecs) > 1:
        raise ClientError("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")
    if (current.compressed and (tls or codecs)) or (tls and current.encrypted):
        raise ClientError("E_IDENTIFY_FAILED", "IDENTIFY failed connection is upgraded already")
    level = DEFAULT_DEFLATE_LEVEL
    if "deflate" in codecs and wanted.deflate_level is not None and wanted.deflate_level > 0:
        level = wanted.deflate_level
    return Layers(tls, codecs[0] if codecs else "", min(level, options.max_deflate_level))


def settle(wanted: Wanted, options: Options, current: Current) -> Settings:
    """Checks the wanted settings against the options; missing ones stay the same. Raises ClientError."""
    heartbeat = pick("heartbeat interval", wanted.heartbeat_interval, current.heartbeat_ms,
                     MIN_MS, options.max_heartbeat_interval // NS_PER_MS)
    timeout = pick("output buffer timeout", wanted.output_buffer_timeout, current.output_buffer_timeout_ms,
                   options.min_output_buffer_timeout // NS_PER_MS, options.max_output_buffer_timeout // NS_PER_MS)
    size = pick("output buffer size", wanted.output_buffer_size, current.output_buffer_size,
                MIN_BUFFER_BYTES, options.max_output_buffer_size)
    if wanted.output_buffer_size == -1:  # no buffer needs no timer
        size, timeout = 1, 0
    rate = wanted.sample_rate or 0
    if not 0 <= rate <= 99:
        raise ClientError("E_BAD_BODY", f"IDENTIFY sample rate ({rate}) is invalid")
    msg_timeout = pick("msg timeout", wanted.msg_timeout, current.msg_timeout_ms,
                       MIN_MS, options.max_msg_timeout // NS_PER_MS, may_disable=False)
    return Settings(text(wanted.client_id), text(wanted.hostname), text(wanted.user_agent),
                    heartbeat, size, timeout, rate, msg_timeout, topology_of(wanted, options),
                    distance_of(wanted, options))


def text(wanted: str | None) -> str:
    """A client's own name for something: kept as long as the client, who may be anyone, and shown in statistics."""
    return (wanted or "")[:MOST_TEXT]


def topology_of(wanted: Wanted, options: Options) -> dict[str, str]:
    """The client's location, as it states."""
    if not options.topology:
        return {}
    return {"topology_zone": text(wanted.topology_zone), "topology_region": text(wanted.topology_region)}


def distance_of(wanted: Wanted, options: Options) -> int:
    """The client's distance from this daemon. An empty name matches no place."""
    if not options.is_topology_aware or (options.topology_zone and wanted.topology_zone == options.topology_zone):
        return SAME_ZONE
    if options.topology_region and wanted.topology_region == options.topology_region:
        return SAME_REGION
    return ELSEWHERE


def pick(name: str, wanted: int | None, current: int, least: int, most: int, may_disable: bool = True) -> int:
    """Checks a number's range. None or 0 keeps the current value; -1 disables."""
    if not wanted:
        return current
    if wanted == -1 and may_disable:
        return 0
    if not least <= wanted <= most:
        raise ClientError("E_BAD_BODY", f"IDENTIFY {name} ({wanted}) is invalid")
    return wanted


def answer(options: Options, settings: Settings, layers: Layers, wanted: Wanted, encrypted: bool) -> Answer:
    """nsqd's reply, field by field, and those of nsqc's own fields that are wanted."""
    return Answer(
        max_rdy_count=options.max_rdy_count,
        version=NSQD_VERSION,
        max_msg_timeout=options.max_msg_timeout // NS_PER_MS,
        msg_timeout=settings.msg_timeout_ms,
        tls_v1=layers.tls,
        deflate=layers.codec == "deflate",
        deflate_level=layers.level,
        max_deflate_level=options.max_deflate_level,
        snappy=layers.codec == "snappy",
        sample_rate=settings.sample_rate,
        auth_required=bool(options.auth_http_address or options.access_file),
        output_buffer_size=settings.output_buffer_size,
        output_buffer_timeout=settings.output_buffer_timeout_ms,
        topology_region=options.topology.get("topology_region", UNSET),
        topology_zone=options.topology.get("topology_zone", UNSET),
        publish_ids=wanted.publish_ids or UNSET,
        deferred_batches=wanted.deferred_batches or UNSET,
        tls_required=(options.tls_required != TLS_NOT_REQUIRED and not encrypted) if wanted.tls_required else UNSET,
    )


def auth_answer(grant: "Grant") -> bytes:
    """The reply to AUTH."""
    return encoder.encode({"identity": grant.identity, "identity_url": grant.identity_url,
                           "permission_count": len(grant.rules)})


def quote(name: bytes) -> str:
    """Bytes in double quotes with escapes, as printed by Go's %q; error texts show names that way."""
    out = []
    text = name.decode("utf-8", "surrogateescape")
    for char in text:
        code = ord(char)
        if char in '"\\':
            out.append("\\" + char)
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char in ESCAPES:
            out.append(ESCAPES[char])
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        elif char.isprintable():
            out.append(char)
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
