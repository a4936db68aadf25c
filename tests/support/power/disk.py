"""The possible contents of a disk after a power failure: rebuilt from a trace, up to a position in it.

Synced data is there: fsync and fdatasync of a file cover its data and size, fsync of a folder its entries. Of
everything else there may be nothing, or some of it: `Chance` decides by a seed. An unsynced write may be there, missing
or torn at a sector; a file may have its new size without the data, and reads zeros there. Entries of a folder change in
order, so a prefix of the changes is there; one that moves something between folders may be there in one of them only. A
failed sync has made nothing durable, and neither does a later one: its data has to be rewritten.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.power.trace import Event

SECTOR = 512


@dataclass
class Change:
    """One change of a file's contents or of a folder's entries."""

    begin: int                      # of its record
    kind: str                       # write, truncate, grow; enter, leave
    at: int = 0
    data: bytes = b""
    name: str = ""
    node: Node | None = None
    durable: bool = False
    lost: bool = False              # a failed sync covered it


@dataclass
class Node:
    """A file or, if it has entries, a folder."""

    entries: dict[str, Node] | None = None      # as the process sees them
    changes: list[Change] = field(default_factory=list)


class Chance:
    """Decides which of the changes that are not durable survive."""

    def entries(self, count: int) -> int:
        """The number of changes of a folder that survive, in order."""
        return 0

    def contents(self, change: Change) -> list[tuple[int, bytes]]:
        """The surviving pieces of a write."""
        return []

    def size(self, change: Change) -> bool:
        """Whether a change of a file's size alone survives."""
        return False


class Everything(Chance):
    """Everything: the disk after kill -9."""

    def entries(self, count: int) -> int:
        return count

    def contents(self, change: Change) -> list[tuple[int, bytes]]:
        return [(change.at, change.data)]

    def size(self, change: Change) -> bool:
        return True


class Names(Chance):
    """All changes of folders, and no contents: a file system that writes names before data."""

    def entries(self, count: int) -> int:
        return count


class Some(Chance):
    """Chosen by a seed."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def entries(self, count: int) -> int:
        return self._random.randint(0, count)

    def contents(self, change: Change) -> list[tuple[int, bytes]]:
        at, data = change.at, change.data
        sectors = range(at - at % SECTOR, at + len(data), SECTOR)
        match self._random.randrange(4):
            case 0:
                return []
            case 1:
                return [(at, data)]
            case 2:         # torn: the first sectors only
                cut = self._random.choice(sectors) - at
                return [(at, data[:max(0, cut)])]
            case _:         # each sector independently
                return [(max(at, sector), data[max(0, sector - at):sector + SECTOR - at])
                        for sector in sectors if self._random.random() < 0.5]

    def size(self, change: Change) -> bool:
        return self._random.random() < 0.5


class Disk:
    """The state at a position of the trace; play() continues from there."""

    def __init__(self) -> None:
        self.root = Node({})
        self._nodes: dict[int, Node] = {}               # by inode
        self._syncs: dict[int, list[Change]] = {}  # changes covered by a running sync, by the beginning of its record

    def play(self, events: Iterable[Event]) -> None:
        """Advances the state by these events."""
        for event in events:
            getattr(self, f"_{event.kind}")(event)

    # ------------------------------------------------------------------ events

    def _folder(self, event: Event) -> None:
        """A folder that exists at the start."""
        self._add(event, Node({}), durable=True)

    def _file(self, event: Event) -> None:
        """A file that exists at the start."""
        node = Node(changes=[Change(event.begin, "write", 0, event.data, durable=True)])
        self._add(event, node, durable=True)

    def _create(self, event: Event) -> None:
        self._add(event, Node())

    def _mkdir(self, event: Event) -> None:
        self._add(event, Node({}))

    def _add(self, event: Event, node: Node, durable: bool = False) -> None:
        if event.path:
            self._enter(event, event.path, node, durable)
        else:
            node = self.root
        self._nodes[event.inode] = node

    def _write(self, event: Event) -> None:
        self._nodes[event.inode].changes.append(Change(event.begin, "write", event.at, event.data))

    def _truncate(self, event: Event) -> None:
        self._nodes[event.inode].changes.append(Change(event.begin, event.kind, event.at))

    _grow = _truncate

    def _sync(self, event: Event) -> None:
        self._syncs[event.begin] = [change for change in self._nodes[event.inode].changes if not change.durable]

    def _synced(self, event: Event) -> None:
        for change in self._syncs.pop(event.at):
            change.durable = change.durable or not change.lost

    def _lost(self, event: Event) -> None:
        for change in self._syncs.pop(event.at):
            change.lost = not change.durable

    def _rename(self, event: Event) -> None:
        node = self._at(event.path)
        if self._at(event.to) is node:
            return                              # two names of one file: nothing happens
        self._leave(event, event.path)
        self._enter(event, event.to, node)

    def _link(self, event: Event) -> None:
        self._enter(event, event.to, self._at(event.path))

    def _unlink(self, event: Event) -> None:
        self._leave(event, event.path)

    _rmdir = _unlink

    def _start(self, event: Event) -> None:
        """Another process continues with the same files; syncs of the one before ended with it."""
        self._syncs.clear()

    # ------------------------------------------------------------------ entries

    def _parent(self, path: str) -> tuple[Node, str]:
        *folders, name = path.split("/")
        node = self.root
        for folder in folders:
            assert node.entries is not None, path
            node = node.entries[folder]
        assert node.entries is not None, path
        return node, name

    def _at(self, path: str) -> Node | None:
        parent, name = self._parent(path)
        return parent.entries.get(name)

    def _enter(self, event: Event, path: str, node: Node, durable: bool = False) -> None:
        parent, name = self._parent(path)
        parent.entries[name] = node
        parent.changes.append(Change(event.begin, "enter", name=name, node=node, durable=durable))

    def _leave(self, event: Event, path: str) -> None:
        parent, name = self._parent(path)
        del parent.entries[name]
        parent.changes.append(Change(event.begin, "leave", name=name))

    # ------------------------------------------------------------------ the disk

    def write(self, folder: Path, chance: Chance) -> None:
        """Makes the folder as the disk holds it."""
        self._write_folder(self.root, folder, chance, {})

    def _write_folder(self, node: Node, path: Path, chance: Chance, made: dict[int, Path]) -> None:
        """made: files that exist under another name, by the id of their node."""
        path.mkdir(exist_ok=True)
        for name, entry in self._surviving(node, chance).items():
            if entry.entries is not None:
                self._write_folder(entry, path / name, chance, made)
            elif id(entry) in made:
                (path / name).hardlink_to(made[id(entry)])
            else:
                (path / name).write_bytes(contents(entry, chance))
                made[id(entry)] = path / name

    def _surviving(self, node: Node, chance: Chance) -> dict[str, Node]:
        """The entries of a folder. Both changes of a rename within it are there, or none."""
        pending = sorted({change.begin for change in node.changes if not change.durable})
        there = set(pending[:chance.entries(len(pending))])
        entries: dict[str, Node] = {}
        for change in node.changes:
            if change.durable or change.begin in there:
                if change.kind == "enter":
                    assert change.node is not None
                    entries[change.name] = change.node
                else:
                    entries.pop(change.name, None)
        return entries


def contents(node: Node, chance: Chance) -> bytes:
    """A file's content. A sector is written as a whole, with everything in it by then."""
    data, seen = bytearray(), bytearray()       # on the disk; as the process has written it

    def grow(what: bytearray, size: int) -> None:
        what.extend(bytes(max(0, size - len(what))))

    def put(what: bytearray, at: int, piece: bytes) -> None:
        grow(what, at)
        what[at:at + len(piece)] = piece

    def resize(what: bytearray, change: Change) -> None:
        if change.kind == "truncate":
            del what[change.at:]
        grow(what, change.at)

    for change in node.changes:
        if change.kind == "write":
            if not change.lost:
                put(seen, change.at, change.data)
            for at, piece in [(change.at, change.data)] if change.durable else chance.contents(change):
                if piece and not (change.durable or change.lost):
                    begin, end = at - at % SECTOR, at + len(piece) + -(at + len(piece)) % SECTOR
                    put(data, begin, bytes(seen[begin:end]))
                elif piece:
                    put(data, at, piece)
            if not change.durable and chance.size(change):
                grow(data, change.at + len(change.data))
        else:
            resize(seen, change)
            if change.durable or chance.size(change):
                resize(data, change)
    return bytes(data)


def other_boot(data: Path) -> None:
    """Makes the rebuilt disk that of a machine that has rebooted."""
    path = data / "nsqc.ids.dat"
    if path.exists():
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"boot_id": "another"}))
