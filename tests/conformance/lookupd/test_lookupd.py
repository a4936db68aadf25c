"""Every scenario recorded from nsqlookupd, played against the lookup server. None differs."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LINE = re.compile(r"^(ok|FAIL|skip) +(\S+/\S+)  \(", re.MULTILINE)
RUN_SECONDS = 3600
JOBS = 4
# Limits of the player are for an idle machine. Waiting longer costs nothing where the answer comes: so that the shortest,
# 1.5 s, becomes a minute.
PATIENCE = 40


def test_all_scenarios(capsys):
    """Slow: each scenario has a server of its own."""
    done = subprocess.run(
        [sys.executable, HERE / "replay_lookupd.py", "--server", f"{sys.executable} -m nsqc lookupd", "--jobs", str(JOBS),
         "--patience", str(PATIENCE), "--verbose"], capture_output=True, text=True, timeout=RUN_SECONDS)
    outcomes = {name: word for word, name in LINE.findall(done.stdout)}
    with capsys.disabled():
        print(f"\nconformance, lookup server: {len(outcomes)} scenarios")
    assert len(outcomes) > 80, done.stdout + done.stderr
    assert set(outcomes.values()) == {"ok"}, done.stdout
    assert done.returncode == 0
