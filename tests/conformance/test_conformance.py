"""Plays every scenario recorded from nsqd against this daemon, once with topics in memory and once with topics in a
log.

expected.toml lists the scenarios that must differ, each with its reason; expected-log.toml lists those that also differ
with topics in a log. The test fails when a scenario leaves or joins the list, so neither a regression nor progress goes
unnoticed.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINE = re.compile(r"^(ok|FAIL|skip) +(\S+/\S+)  \(", re.MULTILINE)
RUN_SECONDS = 3600
JOBS = 3
# The player's limits suit an idle machine. A longer wait costs nothing when the answer comes, so the shortest limit,
# 1.5 s, becomes a minute.
PATIENCE = 40
# For expected differences: there the answer usually never comes.
HASTE = 0.3


def play(only: str, *flags: str, folder: Path = HERE / "scenarios", patience: float = PATIENCE,
         ways: tuple[str, ...] = ("--forked",)) -> tuple[set[str], set[str], str]:
    """Names that passed, names that failed or were skipped, and the player's output."""
    command = " ".join([sys.executable, "-m", "nsqc", "serve", *flags])
    done = subprocess.run(
        [sys.executable, HERE / "replay.py", "--server", command, "--only", only, "--jobs", str(JOBS),
         "--patience", str(patience), "--dir", folder, "--verbose", *ways],
        capture_output=True, text=True, timeout=RUN_SECONDS)
    outcomes = {name: word for word, name in LINE.findall(done.stdout)}
    assert outcomes, done.stdout + done.stderr
    passed = {name for name, word in outcomes.items() if word == "ok"}
    return passed, outcomes.keys() - passed, done.stdout


def differences(printed: str, names: set[str]) -> str:
    """The player's output for these scenarios."""
    starts = [*LINE.finditer(printed)]
    ends = [*(line.start() for line in starts[1:]), len(printed)]
    return "".join(printed[line.start():end] for line, end in zip(starts, ends, strict=True) if line[2] in names)


def listed(name: str) -> dict[str, str]:
    """Scenarios that differ and why, of all tables of a file."""
    with (HERE / name).open("rb") as file:
        return {scenario: reason for reasons in tomllib.load(file).values() for scenario, reason in reasons.items()}


def divided(folder: Path, names: set[str]) -> tuple[Path, Path]:
    """Folders with the scenarios that have none of these names, and with those that have."""
    others, these = folder / "others", folder / "these"
    for into, is_listed in ((others, False), (these, True)):
        into.mkdir()
        for path in sorted((HERE / "scenarios").glob("*.json")):
            document = json.loads(path.read_bytes())
            document["scenarios"] = [scenario for scenario in document["scenarios"]
                                     if (f"{path.stem}/{scenario['name']}" in names) == is_listed]
            (into / path.name).write_text(json.dumps(document))
    return others, these


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    return listed("expected.toml")


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_all_scenarios(storage, expected, capsys, tmp_path):
    """Each scenario has its own server; many wait for fixed times."""
    if storage == "log":
        expected = expected | listed("expected-log.toml")
    others, these = divided(tmp_path, expected.keys())
    flag = f"--topic-storage={storage}"
    passed, failed, printed = play("*", flag, folder=others)
    more = play("*", flag, folder=these, patience=HASTE)
    passed, failed, printed = passed | more[0], failed | more[1], printed + more[2]
    # On a busy machine a player may miss heartbeats of a second: it plays again, a scenario at a time.
    for name in sorted(failed - expected.keys())[:3]:
        again, _, told = play(name, flag, folder=others)
        passed, failed, printed = passed | again, failed - again, printed + told
    with capsys.disabled():
        print(f"\nconformance, topics in {storage}: {len(passed)} scenarios passed, {len(failed)} differ, "
              f"{len(expected)} of them expected")
    unexpected = failed - expected.keys()
    assert unexpected == set(), differences(printed, unexpected)
    assert passed & expected.keys() == set(), "these pass now: take them off the list"
    assert expected.keys() <= passed | failed, "the list names scenarios that do not exist"


@pytest.mark.parametrize("scenario", ["buffering/held-until-timeout", "buffering/reply-flushes"])
def test_with_nsqds_flush_rule(scenario, expected):
    assert scenario in expected
    passed, _, printed = play(scenario, "--output-buffer-flush=timeout")
    assert passed == {scenario}, printed


def test_all_of_buffering_with_nsqds_flush_rule():
    _, failed, printed = play("buffering/*", "--output-buffer-flush=timeout")
    assert failed == set(), differences(printed, failed)


def test_servers_that_a_command_starts(expected):
    """All others are forked."""
    passed, failed, printed = play("process/*", ways=())
    assert len(passed) > 5 and failed <= expected.keys(), printed
