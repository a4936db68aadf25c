"""Keeps the rules of a file declared on all nodes, so that a node that joins later has them, too."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping

from nsqc.admin.fleet import Fleet, Moment, NodeRow
from nsqc.admin.upstream import Ask, UpstreamError, encode
from nsqc.log import Log
from nsqc.options.declared import OptionError
from nsqc.options.file import read_rules
from nsqc.wire.outside import Decoder, Json

_decode = Decoder(dict[str, object]).decode
GET = Ask("GET", "/rules")
AGAIN_S = 60.0      # pause after a refusal


class Steward:
    """Of one fleet. Its findings are in the rows of nodes: see NodeRow.drift."""

    def __init__(self, fleet: Fleet, log: Log, path: str = "", read_only: bool = False) -> None:
        """path: of the file; without one, nodes are only compared with each other. read_only: reports differences and
        changes nothing. Raises OptionError."""
        self._fleet, self._log, self._path, self._read_only = fleet, log, path, read_only
        self._tables: Mapping[str, Json] = read_rules(path) if path else {}
        self._seen = _stamp(path)
        self._agreed: dict[str, tuple[int, float]] = {}     # nodes known to have them: their start, and their digest
        self._refused: dict[str, tuple[float, str]] = {}    # nodes that do not take them: asked again when, and why
        self._fault = ""                                    # why the file cannot be read

    async def tend(self, moment: Moment) -> bool:
        """Looks at all nodes that answer, and gives those that differ the rules of the file. Returns whether any has
        changed."""
        rows = [moment.nodes[address] for address in moment.answering(nsqc=True)]
        if self._path:
            await asyncio.to_thread(self._reread)
            moment.rules_fault = self._fault
            if any(await asyncio.gather(*(self._tend(row) for row in rows))):
                return True     # the digests are those of before
        most = Counter(row.rules_digest for row in rows).most_common(1)
        for row in rows:
            if row.rules_digest != most[0][0] and not row.drift:
                row.drift = (f"its rules differ from those of {most[0][1]} other node{'' if most[0][1] == 1 else 's'}: "
                             "nsqc rules list shows both")
        return False

    def _reread(self) -> None:
        """Runs on a thread. A file that cannot be read changes nothing."""
        seen = _stamp(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._tables = read_rules(self._path)
        except OptionError as error:
            self._fault = str(error)
            self._log.error("RULES: keeping the old ones - %s", error)
        else:
            self._fault = ""
            self._agreed, self._refused = {}, {}

    async def _tend(self, row: NodeRow) -> bool:
        if self._agreed.get(row.address) == (row.start_time, row.rules_digest):
            return False
        again_at, why = self._refused.get(row.address, (0.0, ""))
        if time.monotonic() < again_at:     # each refusal is a line in the node's audit log
            row.drift = why
            return False
        changed = False
        try:
            if not self._has(await self._fleet.get(row.address, GET, _decode)):
                if self._read_only:
                    row.drift = f"it does not have the rules of {self._path}"
                    return False
                await self._fleet.call(row.address, Ask("PUT", "/rules", encode(self._tables)))
                self._log.info("RULES: %s has got those of %s", row.address, self._path)
                changed = True
        except UpstreamError as error:
            row.drift = f"it cannot be given the rules of {self._path}: {error.short}"
            self._refused[row.address] = time.monotonic() + AGAIN_S, row.drift
            return False
        self._refused.pop(row.address, None)
        self._agreed[row.address] = row.start_time, row.rules_digest
        return changed

    def _has(self, answer: Mapping[str, object]) -> bool:
        """Whether a node has these tables, in this order: the first that fits a name applies."""
        found = {scope: answer.get(scope) for scope in self._tables}
        return all(isinstance(its, dict) and [*its.items()] == [*self._tables[scope].items()]
                   for scope, its in found.items())


def _stamp(path: str) -> tuple[int, int, int]:
    """What changes with the file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino
