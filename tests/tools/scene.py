"""The output that docs/tools.md shows of tools that inspect and change; `python -m tests.tools.scene` writes it.

A block of ```shell-session has a command after `$ ` and its output. Commands run in page order, against one daemon;
before some of them, something happens.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from nsqc.store.disk.recovery import encode
from tests.support.daemon import Daemon, wait_until
from tests.support.logs import record
from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS

PAGE = ROOT / "docs/tools.md"
BLOCK = re.compile(r"^```shell-session\n\$ (nsqc [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Values that differ from run to run: ids, addresses, times, figures and their units; and so the width of columns.
CHANGING = re.compile(r"\b[0-9a-f]{16}\b|\d[\d.,:TZ-]*(?: ?(?:us|ms|s)\b)?")
# These commands are shown; others on the page belong to other scenes.
SHOWN = ("topic", "channel", "peek", "nodes", "bench", "diskqueue")


class Scene:
    """A daemon that the commands use without an option, and a folder for them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.node = Daemon(folder / "node")
        config = folder / "nsqc.cfg"
        config.write_text(f'tcp_address = "127.0.0.1:{self.node.tcp_port}"\n'
                          f'http_address = "127.0.0.1:{self.node.http_port}"\n')
        self.environment = {**os.environ, "NSQC_CONFIG": str(config), "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        self.kept: list[object] = []
        self.before: dict[str, Callable[[], None]] = {
            "nsqc topic list": self._publish,
            "nsqc topic log events": self._log,
            "nsqc peek orders billing --state in_flight": self._consume,
            "nsqc diskqueue verify data": self._damage,
        }

    def run(self, command: str) -> str:
        """The output of a command."""
        self.before.get(command, lambda: None)()
        words = [sys.executable, "-m", *command.split()]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_SECONDS, check=False)
        # Columns stay as wide as they are.
        text = re.sub(r"127\.0\.0\.1:(\d+)(  )?", lambda match: "127.0.0.1:4151" + (
            match[2] + " " * (len(match[1]) - 4) if match[2] else ""), done.stdout)
        text = text.replace(str(self.folder), "/var/lib").replace(f"  {socket.gethostname()}  ", "  node1  ")
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    def close(self) -> None:
        """Ends the daemon."""
        self.node.close()

    def _publish(self) -> None:
        producer = self.node.connect()
        producer.pub("orders", *[b'{"order": %d, "total": %d.50}' % (number, 7 * number) for number in range(17, 22)])
        producer.ok("DPUB orders 3600000", b'{"order": 22, "total": 3.00}')
        wait_until(lambda: self.node.channel("orders", "billing")["depth"] == 5)

    def _log(self) -> None:
        self.node.post("/topic/create?topic=events")
        self.node.post("/channel/create?topic=events&channel=audit")
        self.node.connect().pub("events", *[b'{"event": %d}' % number for number in range(5)])

    def _consume(self) -> None:
        consumer = self.node.connect().sub("orders", "billing", 1)
        consumer.message()
        self.kept.append(consumer)

    def _damage(self) -> None:
        folder = self.folder / "data"
        folder.mkdir()
        records = [record(b"body %d" % number, 1_700_000_000_000_000_000 + number, number) for number in range(1, 101)]
        for number, part in enumerate((records[:40], records[40:80], records[80:])):
            (folder / f"orders.diskqueue.{number:06}.dat").write_bytes(b"".join(part))
        (folder / "orders.diskqueue.meta.dat").write_bytes(encode(100, 0, 0, 2, sum(map(len, records[80:]))))
        path = folder / "orders.diskqueue.000001.dat"
        data = bytearray(path.read_bytes())
        at = sum(map(len, records[40:50]))
        data[at:at + 12] = b"\xff" * 12
        path.write_bytes(data)


def blocks(text: str) -> list[tuple[str, str]]:
    """(command, output) of a page."""
    return [(command, shown) for command, shown in BLOCK.findall(text) if command.split()[1] in SHOWN]


def steady(text: str) -> str:
    """The text without values that differ from run to run."""
    return re.sub(r"[ ]+", " ", CHANGING.sub("#", text.replace("all waiting messages", ""))).replace(" \n", "\n")


def main() -> None:
    """Writes the page."""
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        try:
            for command, shown in blocks(text):
                before = f"```shell-session\n$ {command}\n{shown}```"
                text = text.replace(before, f"```shell-session\n$ {command}\n{scene.run(command)}```", 1)
        finally:
            scene.close()
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
