"""The pytest plugin as an application uses it: pytest in its own process."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from nsqc.client import Producer, Worker
from nsqc.testing import Daemon, NotStarted, running
from tests.support.daemon import wait_until
from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS

TESTS = '''
import asyncio
import os
import pytest

folders = []

def test_first(nsqc_daemon, nsqc_producer, nsqc_consume):
    nsqc_producer.publish_many("t", [b"a", b"b", b"c"])
    assert nsqc_consume("t", 2) == [b"a", b"b"]
    nsqc_daemon.restart()
    assert nsqc_consume("t") == [b"c"]
    nsqc_daemon.wait_until_done("t", "test")
    assert os.path.exists(nsqc_daemon.address)
    folders.append(nsqc_daemon.folder)

def test_each_has_its_own(nsqc_daemon):
    assert nsqc_daemon.stats("t") == nsqc_daemon.channel("t", "c") == {}
    assert not folders[0].exists()

@pytest.mark.nsqc_daemon("--max-msg-size=10")
def test_flags(nsqc_producer):
    with pytest.raises(Exception, match="E_BAD_MESSAGE"):
        nsqc_producer.publish("t", b"x" * 11)

def test_on_an_event_loop(nsqc_aio_producer, nsqc_aio_consume):
    async def main():
        async with nsqc_aio_producer as producer:
            await producer.publish("t", b"a")
            return await nsqc_aio_consume("t")
    assert asyncio.run(main()) == [b"a"]

def test_that_fails(nsqc_consume):
    nsqc_consume("t", timeout=0.1)
'''


def run_pytest(folder, text: str) -> str:
    (folder / "test_app.py").write_text(text)
    # Loaded by name, not by entry point: the tree may have one if a distribution was built there.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "nsqc.testing.plugin", "-p", "no:cacheprovider",
                           "--strict-markers", "-q", "test_app.py"], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    return done.stdout + done.stderr


def test_fixtures(tmp_path):
    found = run_pytest(tmp_path, TESTS)
    assert "4 passed" in found and "1 failed" in found, found
    assert "0 of 1 messages of t/test arrived within 0.1 s" in found


def test_the_pages_example(tmp_path):
    example, = (block for block in blocks("docs/client.md", "python") if "nsqc_daemon" in block)
    found = run_pytest(tmp_path, example)
    assert re.search(r"\d passed", found) and "failed" not in found and "error" not in found, found


def test_it_is_declared():
    """pip registers the entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"nsqc": "nsqc.testing.plugin"}


def test_a_daemon_that_does_not_start():
    with pytest.raises(NotStarted, match="no-such-flag"):
        Daemon("--no-such-flag")


def test_an_error_of_a_worker_reaches_the_test():
    def handle(message):
        raise SystemExit("stop it")
    with Daemon() as daemon, Producer(daemon.address) as producer:
        worker = Worker("t", "c", daemon.address, handler=handle)
        with pytest.raises(SystemExit, match="stop it"), running(worker):
            producer.publish("t", b"x")
            wait_until(lambda: worker._handling.error is not None)
        assert daemon.channel("t", "c")["depth"] == 1
