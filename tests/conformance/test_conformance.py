"""Every recorded scenario of the original, played against this daemon.

expected.toml lists the scenarios that must not pass, each with its reason. The test fails when one leaves the list
or joins it, so that neither a regression nor progress goes unnoticed.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINE = re.compile(r"^(ok|FAIL|skip) +(\S+/\S+)  \(", re.MULTILINE)
RUN_SECONDS = 600


def play(only: str, *flags: str, jobs: int = 3) -> tuple[set[str], set[str], str]:
    """Names that passed, names that failed or were skipped, and what the player printed."""
    command = " ".join([sys.executable, "-m", "nsqc", "serve", *flags])
    done = subprocess.run(
        [sys.executable, HERE / "replay.py", "--server", command, "--only", only, "--jobs", str(jobs), "--patience", "2"],
        capture_output=True, text=True, timeout=RUN_SECONDS)
    outcomes = {name: word for word, name in LINE.findall(done.stdout)}
    assert outcomes, done.stdout + done.stderr
    passed = {name for name, word in outcomes.items() if word == "ok"}
    return passed, outcomes.keys() - passed, done.stdout


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    with (HERE / "expected.toml").open("rb") as file:
        return {name: reason for reasons in tomllib.load(file).values() for name, reason in reasons.items()}


def test_all_scenarios(expected, capsys):
    passed, failed, printed = play("*")
    # Some scenarios say when things come, to a tenth of a second: what a busy machine has spoilt is played once more, alone.
    spoilt = failed - expected.keys()
    for scenario in spoilt:
        again, _, more = play(scenario, jobs=1)
        passed, failed, printed = passed | again, failed - again, printed + more
    with capsys.disabled():
        print(f"\nconformance: {len(passed)} scenarios passed, {len(failed)} differ, {len(expected)} of them expected"
              f"; played twice: {', '.join(sorted(spoilt)) or 'none'}")
    assert failed - expected.keys() == set(), printed
    assert passed & expected.keys() == set(), "these pass now: take them off expected.toml"
    assert expected.keys() <= passed | failed, "expected.toml names scenarios that do not exist"


@pytest.mark.parametrize("scenario", ["buffering/held-until-timeout", "buffering/reply-flushes"])
def test_with_the_originals_flush_rule(scenario, expected):
    assert scenario in expected
    passed, _, printed = play(scenario, "--output-buffer-flush=timeout")
    assert passed == {scenario}, printed


def test_all_of_buffering_with_the_originals_flush_rule():
    _, failed, printed = play("buffering/*", "--output-buffer-flush=timeout")
    assert failed == set(), printed
