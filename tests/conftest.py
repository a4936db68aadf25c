"""Fixtures for all tests, and the order in which several processes run them."""

import itertools
import os
from pathlib import Path

import pytest

from tests.support.daemon import Daemon

# Each starts Java itself. As one group they are never more than one beside the shared Spark session.
JAVA = ("tests/spark/test_connect.py", "tests/spark/test_crash.py",
        "tests/perf/test_smoke.py::test_spark_gives_every_metric")
# Tests of ten seconds and more come first: at the end the other processes would wait for them.
LONG = ("tests/conformance/", "tests/firsthour/", "tests/perf/", "tests/e2e/test_restart.py", "tests/e2e/test_kill.py",
        "tests/e2e/test_scale.py")
TREE = Path(__file__).parent.parent


def pytest_configure():
    """NSQC_BUILD says which build the tests expect; the folder they are started in decides which one they get."""
    wanted = os.environ.get("NSQC_BUILD", "release")
    if wanted != "release" and TREE.name != "tree":
        raise pytest.UsageError(f"NSQC_BUILD={wanted}: run the tests in build/{wanted}/tree, as `make {wanted}-test` does")


def pytest_collection_modifyitems(items):
    """Processes get the largest groups first, then single tests in the order made here."""
    for item in items:
        if item.nodeid.startswith(JAVA):
            item.add_marker(pytest.mark.xdist_group("java"))
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture
def daemon(tmp_path):
    """Starts daemons: daemon(*flags) or daemon(*flags, unix=True); all are ended with the test.

    None may have reported a broken rule, as the debug build does.
    """
    running = []
    numbers = itertools.count()

    def start(*flags, data_path=None, **more) -> Daemon:
        node = Daemon(data_path or tmp_path / f"data{next(numbers)}", *flags, **more)
        running.append(node)
        return node

    yield start
    for node in running:
        node.close()
    for node in running:
        broken = [line for line in node.log.splitlines() if "AssertionError" in line]
        assert not broken, broken[:3]
