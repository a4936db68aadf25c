"""Servers that the daemon calls, on real sockets: they record their input, and misbehave on request."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
import urllib.parse

from tests.support.daemon import wait_until
from tests.support.tcpserver import HOST, TcpServer


class Web(TcpServer):
    """The HTTP side of an nsqlookupd. answer(target) returns the raw bytes of an answer, or None to hang."""

    def __init__(self, answer):
        self.answer = answer
        self.heard: list[str] = []
        self.heads: list[str] = []
        self.open = self.most_open = 0
        self._lock = threading.Lock()
        self.released = threading.Event()
        super().__init__()

    def serve(self, guest: socket.socket) -> None:
        with self._lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                more = guest.recv(4096)
                if not more:
                    return
                head += more
            self.heads.append(head.decode())
            target = head.split(b" ")[1].decode()
            self.heard.append(target)
            answer = self.answer(target)
            if answer is None:
                # Until the client gives up, or the test releases it.
                guest.recv(1)
                return
            guest.sendall(answer)
        finally:
            with self._lock:
                self.open -= 1


def http_answer(body: bytes, status: str = "200 OK") -> bytes:
    """A reply with its length."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Lookupd(TcpServer):
    """An nsqlookupd. heard: all commands so far, IDENTIFY as its decoded body, "closed" at the end of a connection."""

    def __init__(self, channels: dict[str, list[str]] | None = None, port: int = 0, answer=None):
        self.channels = channels or {}
        self.web = Web(answer or self._channels)
        self.heard: list = []
        self.magics: list[bytes] = []
        self.introduction: bytes | None = None      # the reply to IDENTIFY, if not the usual one
        self.may_introduce = threading.Event()
        self.may_introduce.set()
        self.replies: dict[str, bytes] = {}         # raw replies to commands, length included
        self.mute = False                           # no command is answered
        self.pieces = 0                             # bytes of a reply sent per write; 0: all
        super().__init__(port)

    def _channels(self, target: str) -> bytes:
        topic = urllib.parse.parse_qs(urllib.parse.urlsplit(target).query)["topic"][0]
        return http_answer(json.dumps({"channels": self.channels.get(topic, [])}).encode())

    def serve(self, guest: socket.socket) -> None:
        stream = guest.makefile("rb")
        try:
            self.magics.append(stream.read(4))
            while line := stream.readline():
                command = line.decode().rstrip("\n")
                reply = b"OK"
                if command == "IDENTIFY":
                    (size,) = struct.unpack(">i", stream.read(4))
                    self.heard.append(json.loads(stream.read(size)))
                    self.may_introduce.wait()
                    reply = self.introduction if self.introduction is not None else json.dumps(
                        {"tcp_port": self.port, "http_port": self.web.port, "version": "1.3.0", "hostname": "lookup",
                         "broadcast_address": HOST}).encode()
                else:
                    self.heard.append(command)
                if not self.mute:
                    self._reply(guest, self.replies.get(command, struct.pack(">i", len(reply)) + reply))
        finally:
            self.heard.append("closed")

    def _reply(self, guest: socket.socket, data: bytes) -> None:
        step = self.pieces or len(data) or 1
        for at in range(0, len(data), step):
            guest.sendall(data[at:at + step])
            if self.pieces:
                time.sleep(0.001)

    def commands(self) -> list[str]:
        """The commands of the last connection after IDENTIFY, without pings."""
        heard = list(self.heard)
        begin = max((at for at, one in enumerate(heard) if isinstance(one, dict)), default=len(heard))
        return [one for one in heard[begin + 1:] if one != "PING"]

    def identities(self) -> list[dict]:
        """The bodies of all IDENTIFYs."""
        return [one for one in self.heard if isinstance(one, dict)]

    def hear(self, *commands: str) -> None:
        """Waits until the last connection has brought these commands and no others, in any order."""
        try:
            wait_until(lambda: sorted(self.commands()) == sorted(commands))
        except AssertionError:
            raise AssertionError(f"heard {self.heard}, not {commands}") from None

    def wait_for_introductions(self, count: int) -> None:
        """Waits for this many IDENTIFYs."""
        wait_until(lambda: len(self.identities()) >= count, f"IDENTIFY number {count}")

    def close(self) -> None:
        self.may_introduce.set()
        super().close()
        self.web.close()


class Statsd:
    """Keeps all datagrams and their lines."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((HOST, 0))
        self.port = self.sock.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self.packets: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                packet = self.sock.recv(1 << 16)
            except OSError:
                return
            if not packet:
                return
            self.packets.append(packet)

    def lines(self) -> list[str]:
        """All lines so far."""
        return b"".join(list(self.packets)).decode().splitlines()

    def values(self, key: str) -> list[int]:
        """All values of the keys with this ending, oldest first."""
        found = [re.fullmatch(r"(\S+):(-?\d+)\|[cg]", line) for line in self.lines()]
        assert all(found)
        return [int(one[2]) for one in found if one[1].endswith(key)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
