"""IDENTIFY: negotiates with a client, and builds the answer. Nothing here changes a connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import msgspec

from nsqc import NSQD_VERSION
from nsqc.log import Log
from nsqc.net.tls import common_name
from nsqc.options.declared import Options
from nsqc.options.option import TLS_NOT_REQUIRED
from nsqc.wire.codecs import CODECS
from nsqc.wire.gojson import BOOL, INT32, INT64, STRING, GoJSONError, decode_struct

if TYPE_CHECKING:
    from nsqc.access.authority import Grant
    from nsqc.tcp.connection import Connection
    from nsqc.tcp.intake import Hub


# ====================================================================== errors
# Errors that Python code returns to a client.

class ClientError(Exception):
    """A V2 error frame: a code such as E_BAD_BODY and a description. The connection closes after it."""

    def __init__(self, code: str, description: str):
        super().__init__(f"{code} {description}")
        self.code = code


# ====================================================================== needs
# Requirements of each V2 command. nsqc/tcp/commands.pyx checks them before it acts; see permit() there.

PUBLISH, CONSUME, NOTHING = "publish", "consume", ""

# Commands for messages in flight need a subscription, whose permission was checked.
COMMANDS = {
    "IDENTIFY": NOTHING, "AUTH": NOTHING, "NOP": NOTHING,
    "PUB": PUBLISH, "MPUB": PUBLISH, "DPUB": PUBLISH, "DMPUB": PUBLISH, "DEAD": PUBLISH,
    "SUB": CONSUME, "RDY": NOTHING, "FIN": NOTHING, "REQ": NOTHING, "TOUCH": NOTHING, "CLS": NOTHING,
}


# ====================================================================== identify

OK = b"OK"
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
    sample_rate: Annotated[int | None, Field(INT32)] = None
    user_agent: Annotated[str | None, Field(STRING)] = None
    msg_timeout: Annotated[int | None, Field(INT64)] = None
    topology_zone: Annotated[str | None, Field(STRING, TOPOLOGY)] = None
    topology_region: Annotated[str | None, Field(STRING, TOPOLOGY)] = None
    # Only for clients that ask for them, so that the answer to others is nsqd's.
    publish_ids: Annotated[bool | None, Field(BOOL, OWN)] = None
    deferred_batches: Annotated[bool | None, Field(BOOL, OWN)] = None
    dead_letters: Annotated[bool | None, Field(BOOL, OWN)] = None
    tls_required: Annotated[bool | None, Field(BOOL, OWN)] = None
    codecs: dict[str, Any] = {}     # the fields of OF_CODECS; Any: bool, or int for a level


OF_CODECS = {**dict.fromkeys(CODECS, BOOL), **{f"{name}_level": INT64 for name, kind in CODECS.items() if kind.levels}}


def kinds(*groups: str) -> dict[str, int]:
    """JSON names and kinds of the fields from these origins."""
    fields = {name: hint.__metadata__[0] for name, hint in get_type_hints(Wanted, include_extras=True).items()
              if name != "codecs"}
    return {name: field.kind for name, field in fields.items() if field.of in groups} | OF_CODECS


KINDS, ALL_KINDS = kinds(NSQD, OWN), kinds(NSQD, TOPOLOGY, OWN)
PLACES = tuple(name for name in kinds(TOPOLOGY) if name not in OF_CODECS)
TEXTS = tuple(name for name, kind in KINDS.items() if kind == STRING)


class Settings(msgspec.Struct, gc=False, frozen=True):
    """A session's settings after IDENTIFY. Times in milliseconds, 0 for none."""

    heartbeat_ms: int
    output_buffer_size: int
    output_buffer_timeout_ms: int
    msg_timeout_ms: int
    distance: int
    shown: dict[str, str | int]  # fields of ClientStats: sample_rate, and the client's own texts


def shown(wanted: Wanted, options: Options) -> dict[str, str | int]:
    """The client's own texts, cut short: anyone may send them, and statistics show them. Its location only if the
    daemon uses it."""
    names = (*TEXTS, *PLACES) if options.topology else TEXTS
    texts = {name: (getattr(wanted, name) or "")[:MOST_TEXT] for name in names}
    return {**texts, "sample_rate": wanted.sample_rate or 0}


class Layers(msgspec.Struct, gc=False, frozen=True):
    """The layers to add after the reply: TLS, and inside it a codec; empty: none."""

    tls: bool
    codec: str
    level: int


class Agreement(NamedTuple):
    """The result of a negotiation, which Session.apply() applies."""

    settings: Settings
    reply: bytes
    layers: Layers | None  # None: no change
    publish_ids: bool = False  # publishes may have an id
    deferred_batches: bool = False  # the client may use DMPUB
    dead_letters: bool = False  # and DEAD


class Current(NamedTuple):
    """A client's settings before the negotiation: missing fields keep them. Times in milliseconds."""

    heartbeat_ms: int
    output_buffer_size: int
    output_buffer_timeout_ms: int
    msg_timeout_ms: int
    encrypted: bool
    compressed: bool


encoder = msgspec.json.Encoder()
MOST_TEXT = 1024    # characters


def negotiate(body: bytes, options: Options, current: Current, log: Log, address: str) -> Agreement:
    """Evaluates an IDENTIFY body; changes nothing. Raises ClientError."""
    try:
        # Any: each value has the kind of its field
        fields: dict[str, Any] = decode_struct(body, ALL_KINDS if options.topology else KINDS)
        wanted = Wanted(codecs={name: fields.pop(name) for name in OF_CODECS if name in fields}, **fields)
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
                     bool(wanted.deferred_batches), bool(wanted.dead_letters))


def agree(wanted: Wanted, options: Options, current: Current) -> Layers:
    """TLS and compression, as far as wanted and offered. Raises ClientError."""
    tls = bool(wanted.tls_v1 and (options.tls_cert or options.tls_key))
    codecs = [name for name in CODECS if wanted.codecs.get(name) and getattr(options, name)]
    if len(codecs) > 1:
        raise ClientError("E_IDENTIFY_FAILED", f"cannot enable both {' and '.join(codecs)} compression")
    if (current.compressed and (tls or codecs)) or (tls and current.encrypted):
        raise ClientError("E_IDENTIFY_FAILED", "IDENTIFY failed connection is upgraded already")
    codec = codecs[0] if codecs else ""
    level = 0
    if codec and CODECS[codec].levels:
        asked = wanted.codecs.get(f"{codec}_level") or 0
        level = min(asked if asked > 0 else CODECS[codec].level, getattr(options, f"max_{codec}_level"))
    return Layers(tls, codec, level)


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
    return Settings(heartbeat, size, timeout, msg_timeout, distance_of(wanted, options), shown(wanted, options))


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


def answer(options: Options, settings: Settings, layers: Layers, wanted: Wanted, encrypted: bool) -> dict[str, object]:
    """nsqd's reply with its keys in its order, and those of nsqc's own fields that are wanted."""
    own = {
        "publish_ids": wanted.publish_ids or None, "deferred_batches": wanted.deferred_batches or None,
        "dead_letters": wanted.dead_letters or None,
        "tls_required": (options.tls_required != TLS_NOT_REQUIRED and not encrypted) if wanted.tls_required else None,
    }
    return {
        "max_rdy_count": options.max_rdy_count,
        "version": NSQD_VERSION,
        "max_msg_timeout": options.max_msg_timeout // NS_PER_MS,
        "msg_timeout": settings.msg_timeout_ms,
        "tls_v1": layers.tls,
        **codecs_answer(options, layers),
        "sample_rate": settings.shown["sample_rate"],
        "auth_required": bool(options.auth_http_address or options.access_file),
        "output_buffer_size": settings.output_buffer_size,
        "output_buffer_timeout": settings.output_buffer_timeout_ms,
        **dict(reversed(options.topology.items())),
        **{name: value for name, value in own.items() if value is not None},
    }


def codecs_answer(options: Options, layers: Layers) -> dict[str, object]:
    """The fields of codecs in the reply."""
    fields: dict[str, object] = {}
    for name, kind in CODECS.items():
        fields[name] = layers.codec == name
        if kind.levels:
            most = getattr(options, f"max_{name}_level")
            fields[f"{name}_level"] = layers.level if layers.codec == name else min(kind.level, most)
            fields[f"max_{name}_level"] = most
    return fields


def auth_answer(grant: Grant) -> bytes:
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


# ====================================================================== secured
# A connection's TLS, described in nsqd's words.

# Cipher suites with names in nsqd; it shows others as numbers.
KNOWN_SUITES = {
    0x0005: "TLS_RSA_WITH_RC4_128_SHA",
    0x000A: "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    0x002F: "TLS_RSA_WITH_AES_128_CBC_SHA",
    0x0035: "TLS_RSA_WITH_AES_256_CBC_SHA",
    0xC007: "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    0xC009: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    0xC00A: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    0xC011: "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    0xC012: "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    0xC013: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    0xC014: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
}
VERSIONS = {"TLSv1": "TLS1.0", "TLSv1.1": "TLS1.1", "TLSv1.2": "TLS1.2", "TLSv1.3": "TLS1.3"}


class Secured(msgspec.Struct, gc=False, frozen=True):
    """A connection's TLS."""

    version: str
    cipher_suite: str
    common_name: str  # from the client's certificate; empty without one


def describe(connection: ssl.SSLObject) -> Secured:
    """The result of a finished handshake."""
    cipher, version = connection.cipher(), connection.version()
    name = None if cipher is None else cipher[0]
    number = next((suite["id"] & 0xFFFF for suite in connection.context.get_ciphers() if suite["name"] == name), 0)
    certificate = connection.getpeercert() or {}
    return Secured(VERSIONS.get(version or "", f"Unknown {version}"),
                   KNOWN_SUITES.get(number, f"Unknown {number}"), common_name(certificate))


# ====================================================================== farewell
# The end of a daemon's TCP clients: they receive their last replies, and new ones may publish and leave.

LINGER_S = 1.0  # a stop waits this long for clients that accept none of their last replies
LINGER_MOST_S = 10.0  # and this long for all clients, even active ones
ARRIVING_S = 0.5  # time for a new client to send its first command
FAREWELL_S = 0.1  # time for finished clients to confirm the end of TLS


async def farewell(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """Closes all connections. Waits a moment for clients to receive their last replies, and less for the end of TLS."""
    start = last = loop.time()
    left = sum(connection.unsent() for connection in hub.connections)
    while hub.connections:
        now, before = loop.time(), left
        left = sum(connection.unsent() for connection in hub.connections)
        if left < before:
            last = now
        if (now - last >= LINGER_S or now - start >= LINGER_MOST_S
                or (now - start >= FAREWELL_S and not any(map(_is_busy, hub.connections)))):
            break
        await asyncio.sleep(0.01)
        hub.close(ARRIVING_S)
    hub.close()


async def accepted() -> None:
    """Returns when all accepted clients have their connection_made(), and the loop has read once more."""
    for _ in range(2):
        await asyncio.sleep(0)


def _is_busy(connection: Connection) -> bool:
    """Whether a stop waits for this client."""
    return connection.unsent() > 0 or connection.arrives(ARRIVING_S)
