"""IDENTIFY, REGISTER, UNREGISTER and PING. Errors, their order and the log lines are nsqlookupd's; every error closes
the connection."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from nsqc.log import INFO, Log
from nsqc.lookupd.registry import CHANNEL, TOPIC, Peer, PeerInfo, Registry
from nsqc.options.durations import format_duration
from nsqc.wire.gojson import INT64, STRING, GoJSONError, decode_struct
from nsqc.wire.names import is_valid_name

OK = b"OK"
# Of nsqlookupd's struct, by its names in JSON.
KINDS = {"remote_address": STRING, "hostname": STRING, "broadcast_address": STRING, "tcp_port": INT64,
         "http_port": INT64, "version": STRING}
# Of newer nodes, ignored by nsqlookupd 1.3.0.
TOPOLOGY = {"topology_zone": STRING, "topology_region": STRING}

Command = Callable[[Registry, Log, Peer, list[bytes]], bytes]


class CommandError(Exception):
    """An error reply, sent before the connection closes; cause: for the log only."""

    def __init__(self, code: bytes, text: bytes, cause: str = "") -> None:
        self.reply = code + b" " + text
        self.cause = cause


def identify(body: bytes, remote: str, log: Log) -> Peer:
    """Parses the body of IDENTIFY. Raises CommandError."""
    try:
        given = decode_struct(body, KINDS | TOPOLOGY)
    except GoJSONError as error:
        raise CommandError(b"E_BAD_BODY", b"IDENTIFY failed to decode JSON body", str(error)) from None
    given["remote_address"] = remote
    if not all(given.get(name) for name in ("broadcast_address", "tcp_port", "http_port", "version")):
        raise CommandError(b"E_BAD_BODY", b"IDENTIFY missing fields")
    known = {name: given.get(name, "") for name in KINDS} | {name: given[name] for name in TOPOLOGY if given.get(name)}
    info = PeerInfo(**known)  # type: ignore[arg-type]
    log.info("CLIENT(%s): IDENTIFY Address:%s TCP:%d HTTP:%d Version:%s", remote, info.broadcast_address, info.tcp_port,
             info.http_port, info.version)
    return Peer(info)


def register(registry: Registry, log: Log, peer: Peer, words: list[bytes]) -> bytes:
    """Registers a topic, or a channel and its topic, for the node."""
    topic, channel = names(words)
    if channel and registry.add(registry.add_channel(topic, channel), peer):
        _registered(log, peer, CHANNEL, topic, channel)
    if registry.add(registry.add_topic(topic), peer):
        _registered(log, peer, TOPIC, topic, "")
    return OK


def unregister(registry: Registry, log: Log, peer: Peer, words: list[bytes]) -> bytes:
    """Unregisters a channel; or a topic, but none of its channels."""
    topic, channel = names(words)
    if channel:
        found = registry.channels.get(topic, {}).get(channel)
        if registry.remove(found, peer):
            _unregistered(log, peer, CHANNEL, topic, channel)
        registry.forget_if_left(found)
        return OK
    for one in registry.find_channels(topic):
        if registry.remove(one, peer):
            log.warn("client(%s) unexpected UNREGISTER category:%s key:%s subkey:%s", peer.id, CHANNEL, topic,
                     one.subkey)
    known = registry.topics.get(topic)
    if registry.remove(known, peer):
        _unregistered(log, peer, TOPIC, topic, "")
    registry.forget_if_left(known)
    return OK


def ping(log: Log, peer: Peer | None) -> bytes:
    """Any sender is answered; a node stays listed."""
    if peer is not None:
        now = monotonic_ns()
        if log.level <= INFO:
            log.info("CLIENT(%s): pinged (last ping %s)", peer.id, format_duration(now - peer.seen))
        peer.seen = now
    return OK


# Commands that need a node.
COMMANDS: dict[bytes, Command] = {b"REGISTER": register, b"UNREGISTER": unregister}


def names(words: list[bytes]) -> tuple[str, str]:
    """Topic and channel, which may be empty. words: the command and its parameters. Raises CommandError."""
    command = words[0]
    if len(words) < 2:
        raise CommandError(b"E_INVALID", command + b" insufficient number of params")
    topic = words[1]
    channel = words[2] if len(words) > 2 else b""
    if not is_valid_name(topic):
        raise CommandError(b"E_BAD_TOPIC", b"%b topic name '%b' is not valid" % (command, topic))
    if channel and not is_valid_name(channel):
        raise CommandError(b"E_BAD_CHANNEL", b"%b channel name '%b' is not valid" % (command, channel))
    return topic.decode(), channel.decode()


def _registered(log: Log, peer: Peer, category: str, topic: str, channel: str) -> None:
    log.info("DB: client(%s) REGISTER category:%s key:%s subkey:%s", peer.id, category, topic, channel)


def _unregistered(log: Log, peer: Peer, category: str, topic: str, channel: str) -> None:
    log.info("DB: client(%s) UNREGISTER category:%s key:%s subkey:%s", peer.id, category, topic, channel)
