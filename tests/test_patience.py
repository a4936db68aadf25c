"""No test waits too briefly for an event: on a busy machine it would fail for nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.patience import WAIT_SECONDS

HERE = Path(__file__).parent
LEAST = 60
# Below a second a limit checks the present state, or shows that nothing comes.
LOOK = 1
# Their first or only argument without a name is a time limit.
WAITS = ("settimeout", "join", "result")
# So is the last argument of these.
UNTIL = ("wait_for", "wait_until", "create_connection")
# And the argument timeout of these.
CALLS = ("run", "communicate", "HTTPConnection", "HTTPSConnection", "create_connection", "urlopen", "wait")
# The players of scenarios have limits for an idle machine, and the tests multiply them.
PLAYERS = ("conformance/kit", "conformance/lookupd/replay_lookupd.py")
# Waits whose expiry shows that nothing more comes or is taken: too short a wait fails no test.
PROOFS = {("e2e/test_messages.py", 3), ("tcp/test_large.py", 1)}


def limits(path: Path) -> Iterator[tuple[int, float]]:
    """Literal time limits and their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [keyword.value for keyword in node.keywords if (keyword.arg == "timeout" and name in CALLS)
                     or (keyword.arg == "seconds" and name == "wait_until")]
            given += node.args[-1:] if name in UNTIL else node.args[:1] if name in WAITS else []
            yield from ((node.lineno, value.value) for value in given
                        if isinstance(value, ast.Constant) and isinstance(value.value, int | float))


def test_limits_are_long():
    assert WAIT_SECONDS >= 180      # also for Spark
    short = [f"{path.relative_to(HERE)}:{line}: {limit} s" for path in sorted(HERE.rglob("*.py"))
             for line, limit in limits(path)
             if not str(path.relative_to(HERE)).startswith(PLAYERS) and LOOK <= limit < LEAST and (str(path.relative_to(HERE)), limit) not in PROOFS]
    assert short == [], "give tests.support.patience.WAIT_SECONDS"


def test_what_counts_as_a_limit(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("run(a, timeout=5)\nsock.settimeout(7)\nwait_until(f, 'x', 9)\nthread.join(11)\nwait_until(f, seconds=13)\n"
                    "parts.join(x)\nrun(a, timeout=WAIT_SECONDS)\nProducer(a, timeout=2)\n")
    assert sorted(limits(path)) == [(1, 5), (2, 7), (3, 9), (4, 11), (5, 13)]


# ---------------------------------------------------------------------- measurements

CLOCKS = ("monotonic", "perf_counter", "process_time", "time")


def bounds(path: Path) -> Iterator[int]:
    """Lines of assertions that something took less than some time."""
    for node in ast.walk(ast.parse(path.read_text())):
        for compared in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            if isinstance(compared, ast.Compare) and isinstance(compared.ops[0], ast.Lt | ast.LtE) and isinstance(compared.left, ast.BinOp):
                now = compared.left.left
                if isinstance(now, ast.Call) and isinstance(now.func, ast.Attribute) and now.func.attr in CLOCKS:
                    yield node.lineno


def test_no_test_asserts_how_quick_something_is():
    """Benches measure (perf/), and tests wait for events."""
    assert [f"{path.relative_to(HERE)}:{line}" for path in sorted(HERE.rglob("*.py")) for line in bounds(path)] == []


def test_what_counts_as_a_bound(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("assert time.monotonic() - began < 5\nassert time.monotonic() - began > 5\nassert count < 1 + time.monotonic()\n"
                    "assert time.monotonic() < deadline\nassert a and time.process_time() - b <= 1\n")
    assert list(bounds(path)) == [1, 5]
