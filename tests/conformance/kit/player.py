"""Plays one scenario."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import select
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.base import (
    CLOSED,
    DEFAULT_WAIT_MS,
    END_CHECK_S,
    FRAME_NAMES,
    HOST,
    LOG_LINES,
    MESSAGE,
    POLL_GAP_S,
    BadScenario,
    Failure,
    Options,
)
from kit.codecs import DeflateCodec, SnappyCodec
from kit.data import look_up, payload, same, shown, sort_key
from kit.fakes import FAKES, Fake
from kit.names import Names
from kit.normal import Normaliser
from kit.scenarios import verb_of
from kit.server import CERTIFICATES, PORTS, Server
from kit.tls import TlsLayer, tls_context
from kit.watching import Watching
from kit.web import Reply, http_call, parse_reply
from kit.wire import Wire, connect


class Player(Watching):
    """Runs the steps of one scenario against one server."""

    def __init__(self, scenario: dict[str, Any], options: Options):
        self.scenario, self.options = scenario, options
        self.names = Names()
        self.normalise = Normaliser(self.names)
        self.wires: dict[str, Wire] = {}
        self.fakes: dict[str, Fake] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.clock = time.monotonic()
        self.server: Server | None = None
        self.log_tail = ""

    # life cycle

    def play(self) -> None:
        try:
            self._prepare()
            for number, step in enumerate(self.scenario["steps"], 1):
                try:
                    self._play_step(step)
                except Failure as failure:
                    words = json.dumps({k: v for k, v in step.items() if k != "golden"})
                    failure.args = (f"step {number} {words}: {failure}",)
                    raise
            self._nothing_left()
        finally:
            self._keep_log()
            self._clean_up()

    def _prepare(self) -> None:
        self.server = Server(self.options, self.folder, self.names)
        flags = self.scenario.get("flags", [])
        for name, spec in self.scenario.get("fakes", {}).items():
            spec = dict(spec)
            fake = FAKES[spec.pop("kind")](spec, self.normalise)
            self.fakes[name] = fake
            self.fakes |= {name + suffix: side for suffix, side in fake.sides.items()}
            self.names.values[name] = fake.place
        if "${certs}" in json.dumps(self.scenario):
            self.names.values["certs"] = str(CERTIFICATES.get())
        for name, content in self.scenario.get("seed", {}).items():
            self._write(name, content)
        if self.scenario.get("autostart", True):
            self.server.start(flags)

    def _clean_up(self) -> None:
        for wire in self.wires.values():
            wire.close()
        if self.server:
            self.server.finish()
        for fake in self.fakes.values():
            fake.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _play_step(self, step: dict[str, Any]) -> None:
        actual = getattr(self, f"do_{verb_of(step)}")(step)
        if actual is None:
            return
        if self.options.record:
            step["golden"] = actual
        elif "golden" not in step:
            raise Failure("nothing is recorded for this step", got=actual)
        elif not same(step["golden"], actual, self.options.key_order):
            raise Failure("other than recorded", step["golden"], actual)

    def _nothing_left(self) -> None:
        """Unread frames count as a difference."""
        if self.scenario.get("leftover") == "ignore":
            return
        end = time.monotonic() + END_CHECK_S
        while (left := end - time.monotonic()) > 0:
            self._pump(left)
        for wire in self.wires.values():
            if item := self._item(wire):
                raise Failure(f"{wire.name}: unread at the end", got=item)

    def _keep_log(self) -> None:
        """The server's last log lines, to explain a failure."""
        if not self.server:
            return
        with contextlib.suppress(OSError):
            lines = self.server.log.read_text(errors="replace").splitlines()
            self.log_tail = "\n".join(lines[-LOG_LINES:])
        code = self.server.process.poll() if self.server.process else None
        if code not in (None, 0, -signal.SIGKILL):
            self.log_tail += f"\nthe server has left with exit code {code}"

    # waiting

    def _deadline(self, step: dict[str, Any], default_ms: int = DEFAULT_WAIT_MS) -> float:
        """Time limits count from the last send, HTTP call or server action."""
        if "within_ms" in step:
            return self.clock + step["within_ms"] / 1000 * self.options.patience
        return time.monotonic() + default_ms / 1000 * self.options.patience

    def _not_too_early(self, step: dict[str, Any], item: Any) -> None:
        spent_ms = (time.monotonic() - self.clock) * 1000
        if spent_ms < step.get("after_ms", 0):
            raise Failure(f"came after {spent_ms:.0f} ms, too early", got=item)

    def _pump(self, timeout: float) -> None:
        """Let bytes arrive on every open connection."""
        alive = {w.sock: w for w in self.wires.values() if not w.closed}
        if not alive:
            time.sleep(min(timeout, 0.01))
            return
        ready, _, _ = select.select(list(alive), [], [], max(timeout, 0))
        for sock in ready:
            wire = alive[sock]
            wire.receive()
            if wire.next_is_heartbeat() and (kept := wire.frame()):
                raise Failure(f"{wire.name}: odd heartbeat", got=shown(kept[1]))

    def _until(self, deadline: float, probe: Callable[[], Any]) -> Any:
        """Poll until probe returns something, pumping in between."""
        while True:
            if (found := probe()) is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._pump(min(left, POLL_GAP_S))

    # connections

    def _wire(self, name: str) -> Wire:
        if name not in self.wires:
            raise BadScenario(f"no connection named {name}")
        return self.wires[name]

    def _named(self, value: str | list[str]) -> list[str]:
        return [value] if isinstance(value, str) else value

    def do_open(self, step: dict[str, Any]) -> None:
        name = step["open"]
        sock = connect(self.server.target(step.get("to", "tcp")))
        if sock.family == socket.AF_INET:
            host, port = sock.getsockname()[:2]
            self.names.addresses[f"{host}:{port}"] = f"<{name}>"
        wire = self.wires[name] = Wire(name, sock, step.get("heartbeats", "answer"))
        magic = step.get("magic", "  V2" if step.get("to", "tcp") == "tcp" else None)
        if magic is not None:
            wire.transmit(payload(magic, self.names.expand))

    def do_send(self, step: dict[str, Any]) -> None:
        if "cmd" in step:
            data = payload(step["cmd"], self.names.expand) + b"\n"
            if "body" in step:
                data += payload({"sized": step["body"]}, self.names.expand)
            elif "bodies" in step:
                sized = [{"sized": b} for b in step["bodies"]]
                inner = [{"i32": len(sized)}, *sized]
                data += payload({"sized": inner}, self.names.expand)
        else:
            data = payload(step["data"], self.names.expand)
        wire = self._wire(step["send"])
        self.clock = time.monotonic()
        size = step.get("split", len(data)) or 1
        for start in range(0, len(data), size):
            wire.transmit(data[start : start + size])
            if size < len(data):
                time.sleep(step.get("gap_ms", 1) / 1000)

    def _item(self, wire: Wire) -> Any:
        """The next event of the connection, in golden form; None while there is none."""
        if found := wire.frame():
            kind, data = found
            if kind == MESSAGE:
                return self.names.message(data)
            if kind in FRAME_NAMES:
                return {FRAME_NAMES[kind]: self._frame_text(data)}
            return {"frame": kind, "data": shown(data)}
        if wire.closed and not wire.closed_told:
            wire.closed_told = True
            if wire.inbox and not wire.layers:
                raise Failure(f"{wire.name}: closed amid a frame", got=shown(bytes(wire.inbox)))
            return CLOSED
        return None

    def _frame_text(self, data: bytes) -> Any:
        if data.startswith(b"{"):
            with contextlib.suppress(ValueError):
                return self.normalise.json(json.loads(data))
        return shown(self.names.conceal(data))

    def do_read(self, step: dict[str, Any]) -> Any:
        wires = [self._wire(n) for n in self._named(step["read"])]
        until_closed = step.get("until") == CLOSED
        wanted = sys.maxsize if until_closed else step.get("n", 1)
        strict = not step.keys() & {"order", "unique", "digest"}
        golden = step.get("golden", []) if not self.options.record else []
        deadline = self._deadline(step)
        items: list[Any] = []

        def probe() -> Any:
            return next((i for w in wires if (i := self._item(w)) is not None), None)

        while len(items) < wanted:
            item = self._until(deadline, probe)
            if item is None:
                wish = "the end" if until_closed else f"{wanted} frames"
                raise Failure(f"waited in vain for {wish}", golden, items)
            self._not_too_early(step, item)
            if step.get("code_only") and "error" in item:
                item = {"error": item["error"].split(" ")[0] + " ..."}
            items.append(item)
            place = len(items) - 1
            if strict and golden and not (place < len(golden) and same(golden[place], item)):
                raise Failure("other than recorded", golden, items)
            if item == CLOSED and (until_closed or len(wires) == 1):
                break
        if step.get("order") == "any":
            items.sort(key=sort_key)
        if step.get("unique"):
            items = [i for n, i in enumerate(items) if i not in items[:n]]
        if step.get("digest"):
            digest = hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16]
            return {"items": len(items), "first": items[0], "last": items[-1], "sha256": digest}
        return items

    def do_read_bytes(self, step: dict[str, Any]) -> Any:
        wire = self._wire(step["read_bytes"])

        def size() -> int | None:
            if "n" in step:
                return step["n"] if len(wire.inbox) >= step["n"] else None
            return len(wire.inbox) if wire.closed else None

        found = self._until(self._deadline(step), size)
        if found is None:
            raise Failure("waited in vain for bytes", step.get("golden"), shown(bytes(wire.inbox)))
        wire.closed_told = wire.closed
        data = bytes(wire.inbox[:found])
        del wire.inbox[:found]
        return {"hex": data.hex()} if step.get("as") == "hex" else self._text(data)

    def do_quiet(self, step: dict[str, Any]) -> None:
        end = time.monotonic() + step["ms"] / 1000
        while (left := end - time.monotonic()) > 0:
            self._pump(min(left, POLL_GAP_S))
            for name in self._named(step["quiet"]):
                if name in self.fakes:
                    if not self.fakes[name].events.empty():
                        raise Failure("not quiet", got=self.fakes[name].events.get())
                elif (item := self._item(self._wire(name))) is not None:
                    raise Failure("not quiet", got=item)

    def do_count(self, step: dict[str, Any]) -> Any:
        """Read messages until none comes for a while; only their number matters."""
        wire, number = self._wire(step["count"]), 0
        while self._until(time.monotonic() + step["quiet_ms"] / 1000, lambda: self._item(wire)):
            number += 1
        low, high = step["between"]
        return {"in_range": True} if low <= number <= high else {"number": number}

    def do_close(self, step: dict[str, Any]) -> None:
        for name in self._named(step["close"]):
            self._wire(name).close()
            del self.wires[name]
        self.clock = time.monotonic()

    def do_half_close(self, step: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._wire(step["half_close"]).sock.shutdown(socket.SHUT_WR)

    def do_upgrade(self, step: dict[str, Any]) -> str | None:
        wire = self._wire(step["upgrade"])
        match step["to"]:
            case "deflate" | "snappy" as name:
                codec = DeflateCodec() if name == "deflate" else SnappyCodec()
                if step.get("raw_out"):  # to send invalid compressed data
                    codec.encode = bytes
                wire.add_layer(codec)
                return None
            case "tls":
                return self._shake_hands(wire, step)
        raise BadScenario(f"unknown upgrade {step['to']}")

    def _shake_hands(self, wire: Wire, step: dict[str, Any]) -> str:
        layer = TlsLayer(tls_context(CERTIFICATES.get(), step))
        layer.incoming.write(bytes(wire.inbox))
        wire.inbox.clear()
        wire.shaking = layer

        def attempt() -> str | None:
            try:
                layer.tls.do_handshake()
                return "ok"
            except ssl.SSLWantReadError:
                return "failed" if wire.closed else None
            except ssl.SSLError:
                return "failed"
            finally:
                with contextlib.suppress(OSError):
                    wire.sock.sendall(layer.outgoing.read())

        result = self._until(self._deadline(step), attempt)
        wire.shaking = None
        if result == "ok":
            wire.add_layer(layer)
        elif result is None:
            raise Failure("the TLS handshake does not end")
        else:
            wire.closed = True
        return result

    # HTTP

    def _call(self, step: dict[str, Any], request: str) -> Reply:
        kind = step.get("to", "http")
        context = tls_context(CERTIFICATES.get(), step) if kind == "https" else None
        body = payload(step["body"], self.names.expand) if "body" in step else None
        return http_call(self.server.target(kind), self.names.expand(request), body,
                         headers=step.get("headers"), chunked=step.get("chunked", False),
                         context=context, timeout=10 * self.options.patience)

    def do_http(self, step: dict[str, Any]) -> dict[str, Any]:
        self.clock = time.monotonic()
        try:
            reply = self._call(step, step["http"])
        except ssl.SSLError:
            return {"tls": "failed"}
        except (http.client.HTTPException, OSError) as broken:
            if step.get("to") == "https" and isinstance(broken, (ConnectionError, TimeoutError)):
                return {"tls": "failed"}
            raise Failure(f"no HTTP answer: {broken!r}") from None
        return self._reply(step, reply)

    def _reply(self, step: dict[str, Any], reply: Reply) -> dict[str, Any]:
        golden: dict[str, Any] = {"status": reply.status}
        if "pick" in step:
            value = self._json(reply.body) if step["pick"] else None
            return golden | {"pick": {p: look_up(value, p) for p in step["pick"]}}
        if reply.headers:
            golden["headers"] = reply.headers
        if "json" in reply.headers.get("Content-Type", "") and reply.body:
            return golden | {"json": self._json(reply.body)}
        text = self._text(reply.body)
        return golden | ({"lines": text} if isinstance(text, list) else {"text": text})

    def do_read_http(self, step: dict[str, Any]) -> dict[str, Any]:
        """The next HTTP reply on a connection that was opened to the HTTP port."""
        wire = self._wire(step["read_http"])
        found = self._until(self._deadline(step),
                            lambda: parse_reply(bytes(wire.inbox), wire.closed))
        if found is None:
            raise Failure("no whole HTTP reply came", got=shown(bytes(wire.inbox)))
        reply, size = found
        del wire.inbox[:size]
        return self._reply(step, reply)

    def _text(self, data: bytes) -> Any:
        try:
            text = self.normalise.lines(data.decode())
        except UnicodeDecodeError:
            return shown(data)
        return text.split("\n") if "\n" in text else text

    def _json(self, data: bytes) -> Any:
        try:
            return self.normalise.json(json.loads(data))
        except ValueError:
            raise Failure("not JSON", got=shown(data)) from None

    def do_poll(self, step: dict[str, Any]) -> None:
        last: Any = None

        def probe() -> bool | None:
            nonlocal last
            with contextlib.suppress(OSError, http.client.HTTPException):
                value = self._json(self._call(step, step["poll"]).body)
                last = {p: look_up(value, p) for p in step["until"]}
            return True if same(last, step["until"]) else None

        if self._until(self._deadline(step), probe) is None:
            raise Failure("polled in vain", step["until"], last)

    # the server process

    def do_server(self, step: dict[str, Any]) -> Any:
        flags = step.get("flags", self.scenario.get("flags", []))
        self.clock = time.monotonic()
        match step["server"]:
            case "start" if step.get("expect") == "exit":
                self.server.spawn(flags)
                return {"exit": self.server.wait()}
            case "start":
                self.server.start(flags)
                return None
            case "stop":
                number = getattr(signal, step.get("signal", "SIGTERM"))
                return {"exit": self.server.stop(number)}
            case "restart":
                code = self.server.stop()
                self.server.start(flags)
                return {"exit": code}
            case "kill":
                self.server.stop(signal.SIGKILL)
                return None
        raise BadScenario(f"unknown server action {step['server']}")

    def do_run(self, step: dict[str, Any]) -> dict[str, Any]:
        code, out = self.server.run_to_exit([self.names.expand(a) for a in step["run"]])
        return {"exit": code, "stdout": self._text(out.encode())}

    def do_rival(self, step: dict[str, Any]) -> dict[str, Any]:
        """A second server on the same data path, on its own ports."""
        flags = [f"--tcp-address={HOST}:{PORTS.take()}", f"--http-address={HOST}:{PORTS.take()}"]
        code, _ = self.server.run_to_exit(self.server.arguments(flags + step["rival"]))
        return {"exit": code}
