"""The Makefile's documented commands are few, and the pages name only commands that exist."""

import re

from tests.support.pages import ROOT

PAGES = [ROOT / "README.md", ROOT / "perf/RESULTS.md", *(ROOT / "docs").glob("*.md")]
MAKEFILE = (ROOT / "Makefile").read_text()


def targets() -> set[str]:
    """All named targets."""
    return {name for line in re.findall(r"^([a-z][\w -]*):(?!=)", MAKEFILE, re.MULTILINE) for name in line.split()}


def test_few_are_documented():
    documented = re.findall(r"^([\w%-]+):.* ##", MAKEFILE, re.MULTILINE)
    assert 15 < len(documented) <= 20
    assert {"build", "run", "check", "test", "long-test", "bench-%"} <= set(documented)


def test_pages_name_commands_that_exist():
    for page in PAGES:
        for name in re.findall(r"`make ([a-z][a-z-]*)[` ]", page.read_text()):
            bench = name.removeprefix("bench-")
            assert name in targets() or (name != bench and any(
                (ROOT / "perf" / place).exists() for place in (f"{bench}.py", f"{bench}/run.py"))), (page.name, name)


def test_every_bench_is_in_the_list():
    """The targets with a command line."""
    benches = {path.parent.name if path.name == "run.py" else path.stem
               for path in [*(ROOT / "perf").glob("*/run.py"), *(ROOT / "perf").glob("*.py")]
               if "__main__" in path.read_text()}
    listed = set(re.findall(r"^\| `make bench-(\w+)`", (ROOT / "perf/RESULTS.md").read_text(), re.MULTILINE))
    assert listed == benches
