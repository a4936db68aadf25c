"""Names for values that differ from run to run: ports, paths, message ids."""

from __future__ import annotations

import itertools
import re
import socket
import time
from typing import Any

from kit.base import MESSAGE_HEADER, BadScenario, Failure
from kit.data import shown


class Names:
    """The values of ${...}, and the symbols of message ids.

    A message is named after its body, so goldens do not depend on arrival
    order; a second message with the same body becomes body#2.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {"hostname": socket.gethostname()}
        self.ids: dict[str, bytes] = {}
        self.symbols: dict[bytes, str] = {}
        self.stamps: dict[bytes, int] = {}
        self.addresses: dict[str, str] = {}

    def expand(self, text: str) -> str:
        def one(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("id:"):
                if name[3:] not in self.ids:
                    raise Failure(f"no message named {name[3:]!r} was seen so far")
                return self.ids[name[3:]].decode("latin-1")
            if name not in self.values:
                raise BadScenario(f"unknown placeholder ${{{name}}}")
            return self.values[name]

        return re.sub(r"\$\{([^}]+)\}", one, text)

    def conceal(self, data: bytes) -> bytes:
        """Put symbols where message ids of this run stand."""
        for message_id, symbol in self.symbols.items():
            data = data.replace(message_id, f"${{id:{symbol}}}".encode())
        return data

    def symbol(self, message_id: bytes, body: bytes) -> str:
        if message_id not in self.symbols:
            text = shown(body)
            stem = text if isinstance(text, str) and len(text) <= 40 else "body"
            names = itertools.chain([stem], (f"{stem}#{n}" for n in itertools.count(2)))
            name = next(n for n in names if n not in self.ids)
            self.ids[name], self.symbols[message_id] = message_id, name
        return self.symbols[message_id]

    def message(self, data: bytes) -> dict[str, Any]:
        """Decode a message, check its invariants, name its id."""
        if len(data) < MESSAGE_HEADER.size:
            return {"message": "<too short>", "data": shown(data)}
        stamp, attempts, message_id = MESSAGE_HEADER.unpack_from(data)
        body = data[MESSAGE_HEADER.size :]
        item = {"message": shown(body), "id": self.symbol(message_id, body), "attempts": attempts}
        if not re.fullmatch(rb"[0-9a-f]{16}", message_id):
            item["odd_id"] = shown(message_id)
        if abs(stamp / 1e9 - time.time()) > 600:
            item["odd_timestamp"] = stamp
        elif self.stamps.setdefault(message_id, stamp) != stamp:
            item["timestamp_changed"] = True
        return item
