"""An application developer's first hour: README's first messages and docs/client.md, verbatim except for the ports."""

import os
import re
import subprocess
import sys
import threading

import pytest

from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept


def at(node, code: str) -> str:
    """Replaces the default ports by this daemon's."""
    return code.replace(":4150", f":{node.tcp_port}").replace(":4151", f":{node.http_port}")


@pytest.fixture
def shell(tmp_path):
    """A checkout whose `.venv` has this Python, and where `pip install` finds every package."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, text in (("python", f'exec {sys.executable} "$@"'), ("pip", '[ "$1" = install ]')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def test_first_messages(daemon, shell, tmp_path):
    """The README's commands publish a message, show it, and print it where a consumer reads; the consumer runs for
    ever."""
    node = daemon(kept())
    scripts = [block for block in blocks("README.md", heading="First messages") if block.strip()]
    assert scripts
    for script in scripts:
        words = [sys.executable, "-c"] if script.startswith(("import ", "from ")) else ["sh", "-ec"]
        running = subprocess.Popen([*words, at(node, script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=shell, cwd=tmp_path, start_new_session=True)
        alarm = threading.Timer(WAIT_SECONDS, running.kill)
        alarm.start()
        try:
            said = []
            for line in running.stdout:
                said.append(line)
                if line.startswith("b'"):
                    break
            assert "b'hello'\n" in said, (said, running.stderr.read())
        finally:
            alarm.cancel()
            os.killpg(running.pid, 9)
            running.communicate()
    topic = next(topic for topic in node.stats()["topics"])
    assert topic["message_count"] >= 1


def examples() -> list[tuple[str, str]]:
    """The page's programs, each with its output."""
    text = (ROOT / "docs" / "client.md").read_text()
    found = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", text, re.DOTALL)
    assert [code for code, _ in found] == blocks("docs/client.md", "python")
    return found


def test_the_pages_examples(daemon, tmp_path):
    node = daemon()
    programs = examples()
    assert len(programs) >= 7
    for code, prints in programs:
        done = subprocess.run([sys.executable, "-W", "default", "-c", at(node, code)], capture_output=True, text=True, timeout=WAIT_SECONDS,
                              cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stderr, done.stdout) == (0, "", prints), code


def test_the_pages_table_has_every_option():
    from nsqc.client.options import CONNECTION, OTHERS

    table = "\n".join(line for line in (ROOT / "docs" / "client.md").read_text().splitlines() if line.startswith("| `"))
    arguments = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines())))
    of_calls = {"batch_bytes", "batch_rows", "window", "delay_ms"}
    assert arguments >= (set(CONNECTION) | set(OTHERS)) - of_calls | {"nsqd", "nsqlookupd"}


def test_the_pages_table_has_every_error():
    from nsqc import client

    page = (ROOT / "docs" / "client.md").read_text()
    errors = {name for name in client.__all__ if isinstance(getattr(client, name), type)
              and issubclass(getattr(client, name), Exception)}
    assert {name for name in errors if f"`{name}`" not in page} == set()


def test_the_page_describes_every_attribute_of_a_message():
    from nsqc.client import Message

    section = (ROOT / "docs" / "client.md").read_text().partition("\n## Messages\n")[2].partition("\n## ")[0]
    described = set(re.findall(r"`(\w+)[`(]", " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
    assert described == {name for name in dir(Message) if not name.startswith("_")}


def test_every_row_of_the_comparison_names_a_test():
    section = (ROOT / "docs" / "client.md").read_text().partition("\n## Beside other clients\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        path, = re.findall(r"`(tests/[\w/]+\.py)` \|$", row)
        assert (ROOT / path).exists(), row
