"""Fixtures for all tests, and the order in which several processes run them."""

import itertools
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.daemon import Daemon
from tests.support.manager import listening

# Files that share one process, in order: the files of a group share a Spark session, or start Java themselves and would
# slow each other down; and two scenario players would take each other's ports. Grouped by file, because test
# distribution sees only paths. Longest first.
GROUPS = {
    "spark": ("firsthour/test_data.py", "spark/test_sink.py", "spark/test_stream.py", "spark/test_log.py", "spark/test_parsing.py"),
    "jobs": ("spark/test_jobs.py", "spark/test_jobs_logs.py"),
    "scenarios": ("conformance/test_conformance.py", "conformance/lookupd/test_lookupd.py"),
    "deb": ("packaging/test_deb.py", "packaging/test_rpm.py", "packaging/test_release.py"),   # their builds share a folder
}
# Files whose tests take seconds each: their tests are distributed one by one, and first, or other processes would wait
# for them at the end. Other files run as a whole, so that each starts its shared daemons once; LATER lists the shortest
# of them.
SINGLY = ("tests/crash/", "tests/firsthour/", "tests/packaging/", "tests/operations/", "tests/perf/", "tests/power/",
          "tests/client/test_types.py", *(f"tests/e2e/test_{name}.py" for name in (
              "clients", "creation", "ends", "ids", "kill", "log_damage", "log_model", "restart")), "tests/spark/test_log_faults.py")
LATER = ("tests/wire/", "tests/options/", "tests/store/", "tests/test_")
# Tests that are marked `long`, beside those with a mark of their own. What they test changes rarely, or other tests
# nearly show it.
LONG = ("tests/crash/", "tests/firsthour/", "tests/operations/", "tests/packaging/", "tests/perf/", "tests/client/test_types.py",
        "tests/access/test_browser.py", *(f"tests/e2e/test_{name}.py" for name in ("fairness", "scale")), "tests/peers/test_monitoring.py",
        "tests/spark/test_jobs.py", "tests/spark/test_jobs_logs.py", "tests/tools/test_page.py", "tests/tools/test_scene.py")
# Spark takes seconds for each query, and Chromium for each page: of the tests with their fixtures `make test` runs one of
# each source and sink, and the tour of the page.
SLOW_FIXTURES = {"spark", "chromium"}
SAMPLES = ("tests/admin/test_page.py", *(f"tests/spark/test_{name}" for name in (
    "stream.py::test_disk_queues_as_a_table", "stream.py::test_there_and_back",
    "log.py::test_a_table_has_each_message_once_with_its_offset")))
TREE = Path(__file__).parent.parent

# On a busy machine an example may take any time; perf/ measures speed.
settings.register_profile("nsqc", deadline=None)
settings.load_profile("nsqc")


def pytest_configure():
    """NSQC_BUILD names the build that the tests expect; the working folder decides which build they get."""
    # A shell that starts the tests in the background makes them, and all their children, ignore SIGINT.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup makes them ignore SIGHUP. The tests keep that; the processes they start do not.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    wanted = os.environ.get("NSQC_BUILD", "release")
    if wanted != "release" and TREE.name != "tree":
        raise pytest.UsageError(f"NSQC_BUILD={wanted}: run the tests in build/{wanted}/tree, as `make {wanted}-test` does")


# `make check` runs these, a sample of every room, and collects nothing else.
CHECKED = tuple(f"tests/{place}" for place in (
    "access/test_rules.py", "access/test_tokens.py", "admin/test_classic.py", "broker/test_channel.py", "broker/test_metadata.py",
    "broker/test_topic.py", "client/test_connection.py", "client/test_consumer.py", "client/test_producer.py", "commands/test_commands.py",
    "conformance/test_conformance.py::test_all_scenarios[memory]", "e2e/test_log_model.py", "e2e/test_messages.py", "httpd/test_publish.py",
    "httpd/test_requests.py", "httpd/test_router.py", "httpd/test_views.py", "log/test_fields.py", "lookupd/test_found.py",
    "lookupd/test_http.py", "metrics/test_formats.py", "net/", "options/", "peers/test_patterns.py", "process/test_lock.py",
    "publishing/test_dedupe.py", "rules/test_model.py", "spark/test_bodies.py", "spark/test_jobs_ledger.py", "spark/test_stagelog.py",
    "store/", "tcp/test_commands.py", "tcp/test_mpub.py", "test_docs.py", "test_imports.py", "tools/test_pub.py", "tools/test_tail.py", "wire/"))
GROUP_OF = {f"tests/{file}": group for group, files in GROUPS.items() for file in files}


def pytest_ignore_collect(collection_path, config):
    """Each process collects the tests: to collect all takes longer than to run those of `make check`."""
    marks = config.getoption("markexpr")
    if not marks or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    file = str(collection_path.relative_to(TREE))
    if marks.startswith("check"):
        return not file.startswith(tuple(place.partition("::")[0] for place in CHECKED)) or None
    return (marks == "not long" and file.startswith(LONG)) or None


def pytest_collection_modifyitems(items):
    """Tests start in this order: groups, slow tests, other files, short files."""
    groups = [*GROUPS]

    def place(item: pytest.Item) -> int:
        group = GROUP_OF.get(item.nodeid.partition("::")[0])
        if group:
            return groups.index(group)
        return len(groups) + (0 if item.nodeid.startswith(SINGLY) else 2 if item.nodeid.startswith(LATER) else 1)

    items.sort(key=place)
    for item in items:
        if item.nodeid.startswith(LONG) or (not SLOW_FIXTURES.isdisjoint(item.fixturenames) and not item.nodeid.startswith(SAMPLES)):
            item.add_marker("long")
        elif item.nodeid.startswith(CHECKED):
            item.add_marker("check")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Code that closes a descriptor twice, or an unset one, may close another owner's: often 0."""
    for number in range(3):
        os.fstat(number)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes groups and files as a whole, in the order above, and the tests of SINGLY one by one.

    With pytest 9.2, xdist's own loadgroup ignores groups silently (pytest-xdist #1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return GROUP_OF.get(file) or (nodeid if file.startswith(SINGLY) else file)

    config.option.loadscopereorder = False      # else the files with most tests come first
    return Scheduling(config, log)


@pytest.fixture
def daemon(tmp_path):
    """Starts daemons: daemon(*flags) or daemon(*flags, unix=True), and ends them with the test.

    No daemon may have reported a broken rule, as the debug build does.
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


@pytest.fixture
def sockets():
    """Two listening ones, as a manager has them; they stay open throughout."""
    pair = [listening(), listening()]
    yield pair
    for sock in pair:
        sock.close()
