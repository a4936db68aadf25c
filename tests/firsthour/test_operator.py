"""An operator's first hour: docs/operations.md, from an empty folder to data that another start reloads."""

import os
import re
import subprocess
import sys

import pytest

from nsqc import __version__
from tests.support.pages import ROOT, blocks
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

PAGE = "docs/operations.md"
NSQC = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from nsqc.cli import main
main()
"""


@pytest.fixture
def shell(tmp_path):
    """Runs a script in an empty folder, with nsqc in its path and its own ports; returns its output."""
    programs, folder = tmp_path / "bin", tmp_path / "nsq"
    programs.mkdir()
    folder.mkdir()
    (programs / "nsqc").write_text(NSQC)
    (programs / "nsqc").chmod(0o755)
    tcp, http = free_port(), free_port()

    def run(script: str) -> str:
        script = script.replace(":4150", f":{tcp}").replace(":4151", f":{http}")
        # Processes of a failed step must not outlive the test.
        script = f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True,
                              timeout=WAIT_SECONDS, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
        logs = "".join(f"{path.name}:\n{path.read_text()}" for path in folder.glob("*.log"))
        assert done.returncode == 0, done.stdout + done.stderr + logs
        run.folder = folder
        return re.sub(rf"\b({tcp}|{http})\b", lambda port: "4150" if port[0] == str(tcp) else "4151", done.stdout)

    return run


def test_the_first_hour(shell):
    steps = blocks(PAGE, heading="The first hour")
    told = shell("echo '== step'\n" + "\necho '== step'\n".join(steps))
    checked, served, reloaded, again, rest = (part.strip() for part in told.split("== step\n")[1:])

    written, ok, *shown = checked.splitlines()
    assert written == "nsqc.cfg written"
    assert ok == "nsqc.cfg: ok, 3 options; data path queues is writable"
    assert [line.split()[:2] for line in shown] == [
        ["tcp_address", "127.0.0.1:4150"], ["http_address", "127.0.0.1:4151"], ["data_path", "queues"]]

    assert served.startswith("OKOKnsqd v1.3.0 ")
    assert re.search(r"\[greetings +\] depth: 1 ", served)

    assert reloaded.splitlines()[0] == "nsqc.cfg: ok, 4 options; data path queues is writable"
    assert "RELOAD: max_rdy_count is now 100" in reloaded
    assert "needs a restart" not in reloaded

    assert again.startswith("OKnsqd v1.3.0 ")
    assert re.search(r"\[greetings +\] depth: 1 ", again)
    log = (shell.folder / "nsqd.log").read_text()
    assert "NSQ: bye" in log and "ERROR" not in log

    assert rest.startswith(f"nsqc {__version__} (compatible with NSQ 1.3.0, ")
    assert (shell.folder / "nsqc.1").read_text().startswith((".TH", ".\\\"", ".nh"))


def test_the_readmes_commands(shell):
    """The commands of its table that need no daemon, verbatim."""
    table = re.findall(r"^\| `(nsqc (?:config|version|man|completion)[^`]*)`.*", (ROOT / "README.md").read_text(), re.M)
    assert len(table) >= 6
    assert shell("nsqc config init FILE") == "FILE written\n"
    for command in table:
        # Brackets mark optional parts.
        assert shell(re.sub(r" \[.*\]", "", command)), command
