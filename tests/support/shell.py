"""Runs the shell blocks of a page as one script, with nsqc in the path and private ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port, is_free

NSQC = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from nsqc.cli import main
main()
"""
PORT = re.compile(r"(?<=127\.0\.0\.1:)[4-6]1[5-7][0-9]\b")
# Processes of a failed step must not outlive the test.
TIDY = "trap 'kill -CONT $(jobs -p) 2>/dev/null || true; kill $(jobs -p) 2>/dev/null || true' EXIT\n"


class Shell:
    """Scripts in an empty folder. Ports such as 127.0.0.1:4150 are replaced in each test, and restored in the
    output."""

    def __init__(self, folder: Path):
        self.folder = folder / "nsq"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "nsqc").write_text(NSQC)
        (programs / "nsqc").chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("NSQC_")}
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        self._ports: dict[str, str] = {}

    def run(self, *steps: str, seconds: float = 2 * WAIT_SECONDS) -> list[str]:
        """The output of each step; all of them are one script, which must succeed."""
        script = TIDY + "\necho '== step'\n".join(["", *steps])
        script = PORT.sub(self._own, script)
        with subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=self.environment, start_new_session=True) as shell:
            try:
                told, _ = shell.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)    # the shell, and all its child processes
                told = f"{shell.communicate()[0]}\nnot done after {seconds:.0f} s"
        logs = "".join(f"\n{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
        assert shell.returncode == 0, told + logs
        for usual, own in self._ports.items():
            told = re.sub(rf"\b{own}\b", usual, told)
        return [part.strip() for part in told.split("== step\n")[1:]]

    def _own(self, found: re.Match[str]) -> str:
        """The replacement for a port of the page. Ports that differ in the last digit stay neighbours."""
        usual = found[0]
        if usual not in self._ports:
            base = free_port()
            while not (is_free(base + 1) and is_free(base + 2)):
                base = free_port()
            for digit in range(3):
                self._ports[f"{usual[:-1]}{digit}"] = str(base + digit)
        return self._ports[usual]
