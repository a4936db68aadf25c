"""Fixtures for all tests, and the order in which several processes run them."""

import itertools
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.daemon import Daemon

# Files whose tests run in one process each, in order: those of a group share a Spark session, or start Java themselves and
# would slow down each other; and two players of scenarios would take each other's ports. By file, because only the path of a
# test is known where tests are distributed.
GROUPS = {
    "spark": ("firsthour/test_data.py", "spark/test_sink.py", "spark/test_stream.py", "spark/test_parsing.py"),
    "jobs": ("spark/test_jobs.py", "spark/test_jobs_logs.py", "spark/test_log.py"),
    "deb": ("packaging/test_deb.py", "packaging/test_rpm.py", "packaging/test_release.py"),   # builds of packages share a folder
    "scenarios": ("conformance/test_conformance.py", "conformance/lookupd/test_lookupd.py"),
}
# Tests of ten seconds and more come first: at the end the other processes would wait for them.
LONG = ("tests/conformance/", "tests/crash/", "tests/firsthour/", "tests/operations/", "tests/perf/", "tests/power/test_log.py",
        "tests/e2e/test_log_damage.py", "tests/e2e/test_log_model.py", "tests/e2e/test_restart.py",
        "tests/e2e/test_kill.py", "tests/e2e/test_scale.py")
TREE = Path(__file__).parent.parent

# On a busy machine an example may take any time; speed belongs to perf/.
settings.register_profile("nsqc", deadline=None)
settings.load_profile("nsqc")


def pytest_configure():
    """NSQC_BUILD says which build the tests expect; the folder they are started in decides which one they get."""
    # A shell that starts the tests in the background has them ignore SIGINT, and all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup has them ignore SIGHUP. These go on doing so, and what they start does not.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    wanted = os.environ.get("NSQC_BUILD", "release")
    if wanted != "release" and TREE.name != "tree":
        raise pytest.UsageError(f"NSQC_BUILD={wanted}: run the tests in build/{wanted}/tree, as `make {wanted}-test` does")


def pytest_collection_modifyitems(items):
    """Single tests start in this order, after the groups."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Code that closes a descriptor twice, or one that was never set, closes those of others: often it is 0."""
    for number in range(3):
        os.fstat(number)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes groups as a whole, the largest first, and other tests one by one.

    With pytest 9.2, xdist's own loadgroup ignores groups silently (pytest-xdist #1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    group_of = {f"tests/{file}": group for group, files in GROUPS.items() for file in files}

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of.get(nodeid.partition("::")[0], nodeid)

    return Scheduling(config, log)


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
