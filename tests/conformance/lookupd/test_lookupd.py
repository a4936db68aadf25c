"""Every scenario recorded from nsqlookupd, played against the lookup server. None differs."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LINE = re.compile(r"^(ok|FAIL|skip) +(\S+/\S+)  \(", re.MULTILINE)
RUN_SECONDS = 3600
JOBS = 4
# The player's limits suit an idle machine. A longer wait costs nothing when the answer comes, so the shortest limit,
# 1.5 s, becomes a minute.
PATIENCE = 40


def play(only: str, *ways: str) -> list[str]:
    """The names of the scenarios, which must all pass."""
    done = subprocess.run(
        [sys.executable, HERE / "replay_lookupd.py", "--server", f"{sys.executable} -m nsqc lookupd", "--only", only,
         "--jobs", str(JOBS), "--patience", str(PATIENCE), "--verbose", *ways], capture_output=True, text=True, timeout=RUN_SECONDS)
    outcomes = {name: word for word, name in LINE.findall(done.stdout)}
    assert set(outcomes.values()) == {"ok"}, done.stdout + done.stderr
    assert done.returncode == 0
    return [*outcomes]


def test_all_scenarios(capsys):
    """Each scenario gets its own forked server."""
    played = play("*", "--forked")
    with capsys.disabled():
        print(f"\nconformance, lookup server: {len(played)} scenarios")
    assert len(played) > 80


def test_servers_that_a_command_starts():
    assert len(play("process/*")) > 2
