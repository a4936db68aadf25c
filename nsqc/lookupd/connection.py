"""One node's connection: bytes to commands, replies to bytes, and a close that loses no reply.

A reply is its length, four bytes, and its text. Work beyond an iteration's share continues in the following ones
(loop/slow.py), and meanwhile nothing is read; nor while a client does not read its replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

import msgspec

from nsqc import NSQD_VERSION
from nsqc.log import INFO, Log
from nsqc.lookupd.registry import A_TOPIC, CHANNEL, CLIENT, Peer, PeerInfo, Registry
from nsqc.loop.slow import Share
from nsqc.loop.uv import span_began, span_ended
from nsqc.net.address import peer_text
from nsqc.net.listener import ConnectionLimits, host_of
from nsqc.options.option import format_duration
from nsqc.options.servers import LookupdOptions
from nsqc.wire.gojson import INT64, STRING, GoJSONError, decode_struct
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.access.audit import Audit
    from nsqc.access.keeper import Access


# ====================================================================== commands
# IDENTIFY, REGISTER, UNREGISTER and PING. Errors, their order and the log lines are nsqlookupd's; every error closes
# the connection.

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
        _registered(log, peer, A_TOPIC, topic, "")
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
        _unregistered(log, peer, A_TOPIC, topic, "")
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


# ====================================================================== hub
# Shared by all nodes' connections: the registry, limits, deadlines, and this server's description.

SWEEP_S = 1.0       # how often incomplete commands are checked
STEP = 32           # registrations removed between two clock reads
SHUTDOWN_LINGER_S = 1.0      # how long a shutdown waits for nodes to read their last replies


class Hub:
    """Created once; connections come and go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, registry: Registry, share: Share, limits: ConnectionLimits,
                 options: LookupdOptions, log: Log) -> None:
        self.loop = loop
        self.registry = registry
        self.share = share
        self.limits = limits
        self.log = log
        self.identity = b""                         # the answer to IDENTIFY
        self.connections: set[Connection] = set()
        self.unfinished: set[Connection] = set()    # with a deadline
        self.closing = False
        self.access: Access | None = None           # the access file; None: every node may announce everything
        self.audit: Audit | None = None
        self._broadcast_address = options.broadcast_address
        self._patience_s = options.handshake_timeout / 1e9
        self._sweep: asyncio.TimerHandle | None = None

    def introduce(self, hostname: str, tcp_port: int, http_port: int) -> None:
        """Sets the answer to IDENTIFY; the ports are known once both listen."""
        self.identity = msgspec.json.encode({
            "broadcast_address": self._broadcast_address, "hostname": hostname, "http_port": http_port,
            "tcp_port": tcp_port, "version": NSQD_VERSION})

    # ------------------------------------------------------------------ access rules

    def judge(self, peer: Peer, host: str) -> None:
        """Decides whether the access file permits to list a node, and vouches for its address."""
        if self.access is None:
            return
        rules, announced = self.access.rules, peer.info.broadcast_address
        listed = rules.may_be_listed(host, announced)
        if peer.listed and not listed:
            self.log.warn("client(%s) may not announce address %s, see [nodes] of the access file", peer.id, announced)
        peer.judge(listed, rules.is_authorised(host, announced))

    def may_register(self, peer: Peer, host: str, words: list[bytes]) -> bool:
        """Whether a node may announce the topic of REGISTER. If not, the node is answered as usual, since an error
        would make it reconnect and register everything again and again. Raises CommandError."""
        if self.access is None:
            return True
        topic, channel = names(words)
        if self.access.rules.may_announce(host, peer.info.broadcast_address, topic):
            return True
        self.log.warn("client(%s) may not announce topic %s, see [nodes] of the access file", peer.id, topic)
        if self.audit is not None:
            self.audit.record("", peer.id, "REGISTER", f"{topic}/{channel}" if channel else topic, "FORBIDDEN")
        return False

    def has_room(self, peer: Peer, words: list[bytes]) -> bool:
        """Whether REGISTER adds no topic or channel beyond the limit. Otherwise, the node is answered as usual, as
        above. Raises CommandError."""
        topic, channel = names(words)
        if self.registry.has_room(topic, channel):
            return True
        self.log.warn("client(%s) registers nothing new: --max-registrations %d reached", peer.id, self.registry.most)
        return False

    def withdraw(self, peer: Peer, host: str) -> None:
        """Removes registrations that a node may no longer announce, in slices."""
        access = self.access
        if access is None:
            return
        self.judge(peer, host)
        announced = peer.info.broadcast_address
        left = [one for one in peer.registrations if one is not self.registry.clients]

        def step() -> bool:
            while left:
                if self.share.over():
                    return True
                for one in left[-STEP:]:
                    if not access.rules.may_announce(host, announced, one.key) and self.registry.remove(one, peer):
                        self.log.info("DB: client(%s) UNREGISTER category:%s key:%s subkey:%s", peer.id, one.category,
                                      one.key, one.subkey)
                        self.registry.forget_if_left(one)
                del left[-STEP:]
            return False

        self.share.add(step)

    # ------------------------------------------------------------------ disconnects

    def leave(self, peer: Peer) -> None:
        """Removes everything that a node has registered: from the answers at once, the rest in slices."""
        self.registry.leave(peer)
        step = self._departure(peer)
        if step():
            self.share.add(step)

    def _departure(self, peer: Peer) -> Callable[[], bool]:
        share, log, left = self.share, self.log, peer.registrations

        def step() -> bool:
            while left:
                if share.over():
                    return True
                for _ in range(min(STEP, len(left))):
                    registration, _ = left.popitem()
                    registration.producers.pop(peer, None)
                    log.info("DB: client(%s) UNREGISTER category:%s key:%s subkey:%s", peer.id, registration.category,
                             registration.key, registration.subkey)
            return False

        return step

    # ------------------------------------------------------------------ deadlines

    def watch(self, connection: Connection) -> float:
        """A command has started and is incomplete; returns its deadline in loop time."""
        self.unfinished.add(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._interval(), self._check)
        return self.loop.time() + self._patience_s

    def _interval(self) -> float:
        return min(SWEEP_S, self._patience_s / 4)

    def _check(self) -> None:
        now = self.loop.time()
        for connection in [one for one in self.unfinished if one.due < now]:
            connection.expire()
        self._sweep = self.loop.call_later(self._interval(), self._check) if self.unfinished else None

    # ------------------------------------------------------------------ shutdown

    async def close(self) -> None:
        """Closes all connections after their last replies."""
        self.closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self.connections):
            connection.close()
        end = self.loop.time() + SHUTDOWN_LINGER_S
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()


# ====================================================================== connection

MAGIC = b"  V1"
OK_REPLY = b"\0\0\0\x02OK"
MAX_LINE = 64 * 1024            # bytes; nsqlookupd has no limit, and no command is longer than 140
MAX_BODY = 4096                 # of IDENTIFY, a few names; nsqlookupd allocates any announced size
AT_ONCE = 16                    # commands between two clock reads
LINGER_S = 0.5                  # a refused connection stays half open: closing with unread input would lose the reply
NO_MAGIC, LINE, SIZE, BODY = range(4)  # the expected input


class Connection(asyncio.Protocol):
    """The loop's protocol for one client, which is a node once it has sent IDENTIFY."""

    __slots__ = ("_at", "_blocked", "_ended", "_eof", "_host", "_hub", "_inbox", "_next", "_queued", "_size", "_spoke",
                 "due", "id", "peer", "transport")

    transport: asyncio.Transport

    def __init__(self, hub: Hub) -> None:
        self.id = ""                # its address
        self.peer: Peer | None = None
        self.due = 0.0              # loop time by which a command must be complete; 0: none has started
        self._hub = hub
        self._host = ""
        self._inbox = b""           # input, unconsumed from _at on
        self._at = 0
        self._next = NO_MAGIC
        self._size = 0              # of the body being received
        self._spoke = False         # something has arrived: it is not just a probe
        self._queued = False        # the rest of the input waits for its share of an iteration
        self._blocked = False       # the client does not read its replies
        self._eof = False           # the client sends no more
        self._ended = False         # no more commands are executed

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._host = host_of(peer)
        self.id = peer_text(peer)
        if self._hub.closing or not self._hub.limits.enter(self._host):
            self._ended = True
            self.transport.abort()
            return
        self._hub.connections.add(self)
        self.due = self._hub.watch(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        self._end(str(error) if error is not None else "EOF")
        if self in self._hub.connections:
            self._hub.connections.remove(self)
            self._hub.limits.leave(self._host)
        self._inbox = b""

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._ended:
            return
        if not self._spoke:
            self._spoke = True
            self._hub.log.info("TCP: new client(%s)", self.id)
        if self._at < len(self._inbox):
            self._inbox = self._inbox[self._at:] + data
        else:
            self._inbox = data
        self._at = 0
        if self._queued or self._blocked:
            return
        if self._hub.share.over():
            self._wait()
        else:
            began = span_began()
            self._work()
            span_ended(began, "commands of", self)

    def __str__(self) -> str:
        return f"client({self.id})"

    def rules_changed(self) -> None:
        """Applies new access rules."""
        if self.peer is not None and not self._ended:
            self._hub.withdraw(self.peer, self._host)

    def eof_received(self) -> bool:
        """The client sends no more; commands already sent are still executed."""
        self._eof = True
        if self._ended:
            self.transport.close()
        elif not (self._queued or self._blocked):
            if self._hub.share.over():
                # Thousands may disconnect at once: cleanup can wait, but each must leave the answers at once.
                if self.peer is not None and self._next == LINE:
                    self._hub.registry.leave(self.peer)
                self._wait()
            else:
                self._input_ended()
        return self.transport.can_write_eof()       # TLS cannot stay half open

    def pause_writing(self) -> None:
        """The client does not read its replies: none of its commands are executed."""
        self._blocked = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._blocked = False
        if not (self._queued or self._ended):
            self._wait()

    # ------------------------------------------------------------------ commands

    def _wait(self) -> None:
        """Continues in the next iteration."""
        if self.transport.is_closing():
            return
        self._queued = True
        self.transport.pause_reading()
        self._hub.share.add(self._continue)

    def _continue(self) -> bool:
        """Runs for one iteration; True: input remains."""
        if self._ended or self._blocked or self.transport.is_closing():
            self._queued = False
            return False
        if self._work(in_turn=True):
            return True
        self._queued = False
        if self._eof:
            self._input_ended()
        elif not (self._ended or self._blocked):
            self.transport.resume_reading()
        return False

    def _work(self, in_turn: bool = False) -> bool:
        """Executes complete commands; True: the share ended first."""
        share = self._hub.share
        replies: list[bytes] = []
        count = 0
        is_left = False
        try:
            while (reply := self._one()) is not None:
                if reply:
                    replies.append(reply)
                count += 1
                if count % AT_ONCE == 0 and share.over():
                    is_left = True
                    break
        except CommandError as error:
            self._refuse(error, replies)
            return False
        if replies:
            self.transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
        if is_left and not in_turn:
            self._wait()
        self._time()
        return is_left

    def _one(self) -> bytes | None:
        """The reply to the next command; None: incomplete; empty: a part without a reply. Raises
        CommandError."""
        inbox, at = self._inbox, self._at
        if self._next == LINE:
            end = inbox.find(b"\n", at)
            if end < 0:
                if len(inbox) - at > MAX_LINE:
                    raise CommandError(b"E_INVALID", b"line is longer than %d bytes" % MAX_LINE)
                return None
            self._at = end + 1
            return self._command(inbox[at:end].strip())
        left = len(inbox) - at
        if self._next == NO_MAGIC:
            if left < len(MAGIC):
                return None
            self._at = at + len(MAGIC)
            self._greeted(inbox[at:self._at])
            return b""
        if self._next == SIZE:
            if left < 4:
                return None
            self._at = at + 4
            self._size = int.from_bytes(inbox[at:self._at], "big", signed=True)
            if not 0 <= self._size <= MAX_BODY:
                raise CommandError(b"E_BAD_BODY", b"IDENTIFY failed to read body",
                                   f"size {self._size} is not within 0 and {MAX_BODY}")
            self._next = BODY
            return b""
        if left < self._size:
            return None
        self._at = at + self._size
        self._next = LINE
        return self._identify(inbox[at:self._at])

    def _greeted(self, magic: bytes) -> None:
        shown = magic.decode("utf-8", "replace")
        self._hub.log.info("CLIENT(%s): desired protocol magic '%s'", self.id, shown)
        if magic != MAGIC:
            raise CommandError(b"E_BAD_PROTOCOL", b"", f"bad protocol magic '{shown}'")
        self._next = LINE

    def _command(self, line: bytes) -> bytes:
        words = line.split(b" ")
        name = words[0]
        if command := COMMANDS.get(name):
            if self.peer is None:
                raise CommandError(b"E_INVALID", b"client must IDENTIFY")
            if name == b"REGISTER" and not self._hub.may_register(self.peer, self._host, words):
                return OK_REPLY
            if name == b"REGISTER" and not self._hub.has_room(self.peer, words):
                return OK_REPLY
            command(self._hub.registry, self._hub.log, self.peer, words)
            return OK_REPLY
        if name == b"PING":
            ping(self._hub.log, self.peer)
            return OK_REPLY
        if name != b"IDENTIFY":
            raise CommandError(b"E_INVALID", b"invalid command " + name)
        if self.peer is not None:
            raise CommandError(b"E_INVALID", b"cannot IDENTIFY again")
        self._next = SIZE
        return b""

    def _identify(self, body: bytes) -> bytes:
        hub = self._hub
        peer = self.peer = identify(body, self.id, hub.log)
        hub.judge(peer, self._host)
        if hub.registry.add(hub.registry.clients, peer) and hub.log.level <= INFO:
            hub.log.info("DB: client(%s) REGISTER category:%s key:%s subkey:%s", self.id, CLIENT, "", "")
        return framed(hub.identity)

    # ------------------------------------------------------------------ time limits

    def _time(self) -> None:
        """Sets a deadline for an incomplete command, clears it for a complete one."""
        if self._next == LINE and self._at >= len(self._inbox):
            self._inbox = b""
            self._at = 0
            if self.due:
                self.due = 0.0
                self._hub.unfinished.discard(self)
        elif not self.due:
            self.due = self._hub.watch(self)

    def expire(self) -> None:
        """A command was not completed in time."""
        if self._queued or self._blocked:
            # It has arrived, and waits for others, or for its client to read replies.
            self.due = self._hub.watch(self)
            return
        self._end("i/o timeout")
        self.transport.close()

    # ------------------------------------------------------------------ closing

    def _refuse(self, error: CommandError, replies: list[bytes]) -> None:
        """Sends the error, and closes the connection."""
        log, text = self._hub.log, error.reply.decode("utf-8", "replace").rstrip(" ")
        if self._next == NO_MAGIC:
            log.error("client(%s) %s", self.id, error.cause)
        else:
            log.error("[%s] - %s%s", self.id, text, f" - {error.cause}" if error.cause else "",
                      kind=text.partition(" ")[0])
        replies.append(framed(error.reply.rstrip(b" ") if self._next == NO_MAGIC else error.reply))
        self.transport.write(b"".join(replies))
        self._end(text)
        if self._eof or self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.transport.resume_reading()
        self._hub.loop.call_later(LINGER_S, self.transport.close)

    def _input_ended(self) -> None:
        """Closes, perhaps in the middle of a command."""
        if self._ended:
            return
        if self._next in (SIZE, BODY):
            what = b"IDENTIFY failed to read body" + (b" size" if self._next == SIZE else b"")
            empty = self._at >= len(self._inbox)
            self._refuse(CommandError(b"E_BAD_BODY", what, "EOF" if empty else "unexpected EOF"), [])
            return
        self._end("EOF")
        self.transport.close()

    def close(self) -> None:
        """The server stops."""
        self._end("")
        self.transport.close()

    def _end(self, reason: str) -> None:
        """Executes nothing more, and unlists the node. reason: for the log; empty: the server stops."""
        if self._ended:
            return
        self._ended = True
        self._hub.unfinished.discard(self)
        log = self._hub.log
        if self._next == NO_MAGIC:
            if not self._spoke:
                log.debug("TCP: client(%s) disconnected without sending anything", self.id)
            elif reason and not reason.startswith("E_"):
                log.error("failed to read protocol version - %s", reason)
            return
        log.info("PROTOCOL(V1): [%s] exiting ioloop", self.id)
        if self.peer is not None:
            self._hub.leave(self.peer)
        if reason:
            log.error("client(%s) - %s", self.id, reason)


def framed(text: bytes) -> bytes:
    """Encodes a reply."""
    return len(text).to_bytes(4, "big") + text
