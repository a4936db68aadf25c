"""One node's connection: bytes to commands, replies to bytes, and a close that loses no reply.

A reply is its length, four bytes, and its text. Work beyond an iteration's share continues in the following ones
(loop/share.py), and meanwhile nothing is read; nor while a client does not read its replies.
"""

from __future__ import annotations

import asyncio
from typing import cast

from nsqc.log import INFO
from nsqc.lookupd import commands
from nsqc.lookupd.commands import CommandError
from nsqc.lookupd.hub import Hub
from nsqc.lookupd.registry import CLIENT, Peer
from nsqc.loop.watch import span_began, span_ended
from nsqc.net.address import peer_text
from nsqc.net.limits import host_of

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
        return True

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
        if command := commands.COMMANDS.get(name):
            if self.peer is None:
                raise CommandError(b"E_INVALID", b"client must IDENTIFY")
            if name == b"REGISTER" and not self._hub.may_register(self.peer, self._host, words):
                return OK_REPLY
            if name == b"REGISTER" and not self._hub.has_room(self.peer, words):
                return OK_REPLY
            command(self._hub.registry, self._hub.log, self.peer, words)
            return OK_REPLY
        if name == b"PING":
            commands.ping(self._hub.log, self.peer)
            return OK_REPLY
        if name != b"IDENTIFY":
            raise CommandError(b"E_INVALID", b"invalid command " + name)
        if self.peer is not None:
            raise CommandError(b"E_INVALID", b"cannot IDENTIFY again")
        self._next = SIZE
        return b""

    def _identify(self, body: bytes) -> bytes:
        hub = self._hub
        peer = self.peer = commands.identify(body, self.id, hub.log)
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
        if self._eof or self.transport.is_closing():
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
