"""docs/tools.md: its examples run, in order, with the page's output."""

import os
import re
import signal
import subprocess
import sys

from nsqc.commands import ORIGINALS, TOOLS
from tests.support.daemon import Daemon, wait_until
from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS
from tests.tools.conftest import ENV

CHANNELS = {"to-file": "nsq_to_file", "relay": "nsq_to_nsq"}
CHANGES = ((r'"id": "[0-9a-f]{16}"', '"id": ID'), (r'"timestamp": \d{19}', '"timestamp": TIME'))


def examples() -> list[tuple[str, str]]:
    """Commands of the page, and their output."""
    found = []
    for block in blocks("docs/tools.md", "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def even(text: str) -> str:
    """The text without values that differ in each run."""
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    return text


def result(node: Daemon, command: str, is_stopped: bool, **more) -> str:
    """The output of a command. is_stopped: by Ctrl-C, when its channel is empty."""
    if not is_stopped:
        return subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=WAIT_SECONDS, stdin=subprocess.DEVNULL, **more).stdout
    channel = next(channel for tool, channel in CHANNELS.items() if f"nsqc {tool} " in command)
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               stdin=subprocess.DEVNULL, **more)
    try:
        wait_until(lambda: not node.channel("orders", channel)["depth"] and not node.channel("orders", channel)["in_flight_count"],
                   command)
        process.send_signal(signal.SIGINT)
        return "^C\n" + process.communicate(timeout=WAIT_SECONDS)[0]
    finally:
        process.kill()
        process.wait()


def test_the_examples_print_what_the_page_says(tmp_path):
    node = Daemon(tmp_path / "data")
    try:
        node.post("/topic/create?topic=orders")
        node.post("/channel/create?topic=orders&channel=shell")
        for channel in ("nsq_to_file", "nsq_to_nsq", "nsq_to_http"):
            node.post(f"/channel/create?topic=orders&channel={channel}")
        (tmp_path / "nsqc.cfg").write_text(
            f'tcp_address = "127.0.0.1:{node.tcp_port}"\nhttp_address = "127.0.0.1:{node.http_port}"\n')
        (tmp_path / "bin").mkdir()
        script = tmp_path / "bin/nsqc"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m nsqc "$@"\n')
        script.chmod(0o755)
        env = {**ENV, "NSQC_CONFIG": str(tmp_path / "nsqc.cfg"), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        for command, output in examples():
            for port, its in (("4150", node.tcp_port), ("4151", node.http_port)):
                command = command.replace(f"127.0.0.1:{port}", f"127.0.0.1:{its}")
            told = result(node, command, output.startswith("^C\n"), cwd=tmp_path, env=env)
            for port, its in (("4150", node.tcp_port), ("4151", node.http_port)):
                told = re.sub(rf"\b{its}\b", port, told)
            assert even(told) == even(output), command
    finally:
        node.close()


def test_every_tool_has_its_place_on_the_page():
    page = (ROOT / "docs/tools.md").read_text()
    for name in TOOLS:
        assert f"nsqc {name}" in page, name
    for name in ORIGINALS:
        assert f"`{name}" in page, name
