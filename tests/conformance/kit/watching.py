"""Steps that inspect a server's effects: files in the data path, traffic at fakes, message ids."""

from __future__ import annotations

import fnmatch
import json
import queue
import re
import struct
import time
from typing import Any

from kit.base import (
    VARYING_STATSD,
    Failure,
)
from kit.data import look_up, payload, sort_key
from kit.fakes import FakeStatsd


class Watching:
    """The part of a player that has these steps."""

    def _write(self, name: str, content: Any) -> None:
        path = self.server.data / name
        if content == {"directory": True}:  # stands in the way of a file
            path.mkdir()
        else:
            path.write_bytes(payload(content, self.names.expand))

    def do_write(self, step: dict[str, Any]) -> None:
        self._write(step["write"], step["content"])

    def do_file(self, step: dict[str, Any]) -> Any:
        path = self.server.data / step["file"]
        last: Any = "<no such file>"

        def probe() -> Any:
            nonlocal last
            try:
                last = self._file(path.read_bytes(), step.get("as", "text"))
            except (OSError, ValueError):
                return None
            if any(look_up(last, p) != v for p, v in step.get("until", {}).items()):
                return None
            return last

        found = self._until(self._deadline(step), probe)
        if found is None:
            raise Failure("waited in vain for the file", step.get("golden"), last)
        return found

    def _file(self, data: bytes, form: str) -> Any:
        if form == "json":
            value = self.normalise.json(json.loads(data))
            return self._sorted_metadata(value)
        if form == "records":
            return self._records(data)
        return self._text(data)

    def _sorted_metadata(self, value: Any) -> Any:
        """Topics and channels stand in nsqd.dat in no particular order."""
        for topic in value.get("topics") or []:
            if topic.get("channels"):
                topic["channels"].sort(key=sort_key)
        if value.get("topics"):
            value["topics"].sort(key=sort_key)
        return value

    def _records(self, data: bytes) -> list[Any]:
        """Messages of a disk queue file: a length before each."""
        items, at = [], 0
        while at + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            items.append(self.names.message(data[at + 4 : at + 4 + size]))
            at += 4 + max(size, 0)
        return items

    def do_files(self, step: dict[str, Any]) -> list[str]:
        wanted = step.get("until")

        def listing() -> list[str]:
            found = fnmatch.filter((p.name for p in self.server.data.iterdir()), step["files"])
            return sorted(f for f in found if not f.endswith(".tmp"))

        def settled() -> list[str] | None:
            found = listing()
            return found if wanted is None or found == wanted else None

        found = self._until(self._deadline(step), settled)
        if found is None:
            raise Failure("waited in vain for files", wanted, listing())
        return found

    # fakes

    def do_heard(self, step: dict[str, Any]) -> list[Any]:
        fake, items = self.fakes[step["heard"]], []
        deadline = self._deadline(step)

        def event() -> Any:
            try:
                return fake.events.get_nowait()
            except queue.Empty:
                return None

        while len(items) < step.get("n", 1):
            found = self._until(deadline, event)
            if found is None:
                raise Failure("the fake heard too little", step.get("golden"), items)
            self._not_too_early(step, found)
            items.append(found)
        if step.get("order") == "any":
            items.sort(key=sort_key)
        return items

    def do_statsd(self, step: dict[str, Any]) -> dict[str, Any]:
        """Wait for values, then for one more round of every line, and show the table."""
        fake = self.fakes[step["statsd"]]
        assert isinstance(fake, FakeStatsd)
        values = self.names.values
        host = re.sub(r"[.:]", "_", f"{values['hostname']}:{values['http_port']}")
        now: dict[str, int] = {}
        held_since = 0.0

        def settled() -> dict[str, int] | None:
            nonlocal now, held_since
            table, oldest = fake.snapshot()
            now = {k.replace(host, "<host>"): v for k, v in table.items()}
            if any(now.get(k) != v for k, v in step["until"].items()):
                held_since = 0.0
                return None
            held_since = held_since or time.monotonic()
            return now if oldest > held_since else None

        found = self._until(self._deadline(step, 15000), settled)
        if found is None:
            raise Failure("statsd lines never came", step["until"], now)
        lines = {k: "<number>" if re.search(VARYING_STATSD, k) else v for k, v in found.items()
                 if fnmatch.fnmatchcase(k, step.get("only", "*"))}
        golden: dict[str, Any] = {"lines": lines, "odd": list(fake.odd)}
        if "packet_size" in step:
            golden["fits"] = fake.largest <= step["packet_size"]
        return golden

    def do_fake(self, step: dict[str, Any]) -> None:
        fake = self.fakes[step["fake"]]
        if "answer" in step:
            fake.answer(**step["answer"])
        else:
            fake.drop()

    # the rest

    def do_ids(self, step: dict[str, Any]) -> dict[str, Any]:
        """Take message ids apart: pseudo-milliseconds, node, sequence."""
        numbers = [int(self.names.ids[n], 16) for n in step["ids"]]
        made = [(n >> 22) + 1288834974288 << 20 for n in numbers]
        now = time.time_ns()
        return {"nodes": sorted({n >> 12 & 1023 for n in numbers}),
                "rising": numbers == sorted(set(numbers)),
                "fresh": all(abs(now - t) < 60e9 for t in made)}

    def do_wait_ms(self, step: dict[str, Any]) -> None:
        end = time.monotonic() + step["wait_ms"] / 1000
        while (left := end - time.monotonic()) > 0:
            self._pump(left)
