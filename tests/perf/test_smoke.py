"""The perf harness works: quick benches produce results, which nothing here judges.

Slow: each bench runs, if only for a moment.
"""

import dataclasses
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perf
from perf import capacity
from perf.load import metrics
from perf.load.metrics import Metric
from perf.log import work as log
from perf.micro import run as micro
from perf.rivals import servers
from perf.stalls import run as stalls
from perf.stalls.stage import Result

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 480


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_module_can_be_imported():
    """A bench that no test runs would break unnoticed."""
    names = [module.name for module in pkgutil.walk_packages(perf.__path__, "perf.")]
    assert len(names) > 50
    for name in names:
        importlib.import_module(name)


def test_capacity_measures_all_costs_of_the_page():
    out = run("perf.capacity", "--quick")
    assert re.findall(r"^(\w+) +-?[\d,]+ bytes \(page ", out, re.M) == list(capacity.costs_of_page())


def test_scrape():
    out = run("perf.scrape.run", "--topics", "5", "--channels", "2")
    assert len(re.findall(r"longest /ping +[\d.]+ ms$", out, re.M)) == 15


@pytest.mark.parametrize("name", micro.names())
def test_bench(name):
    out = run("perf.micro.run", "--quick", name)
    results = re.findall(r"^  (.+?) +([\d.]+) ns +([\d.]+) x .+ \(([\d.]+) ns\)$", out, re.M)
    assert results and len(results) == len(out.splitlines()) - 1
    assert all(float(ns) > 0 for _, ns, _, _ in results)


def test_start_gives_ratio_and_memory():
    base, command, summary = run("perf.start", "--runs", "1").splitlines()[1:]
    for line in (base, command):
        assert re.search(r": median \d+ ms, from \d+ to \d+$", line), line
    assert re.fullmatch(r"  [\d.]+ x \(bar 1.6: (ok|MISSED)\); VmRSS [\d.]+ MB \(bar 30: (ok|MISSED)\), "
                        r"PSS [\d.]+ MB", summary)


def test_tools_give_a_rate_each():
    out = run("perf.tools.run", "--quick", "--only", "to-file,disk floor")
    rates = re.findall(r"^ +(client|to-file|disk floor) +([\d,]+) ", out, re.M)
    assert [name for name, _ in rates] == ["client", "to-file", "disk floor"]
    assert all(int(rate.replace(",", "")) > 0 for _, rate in rates)


def test_bars_of_stalls():
    fine = Result(p50=0.1, p99=9.9, max=24.9, grew=120 << 20, queued=90 << 20, in_memory=30 << 20, clients=10)
    assert stalls.ok(fine)
    for worse in ({"p99": 10.1}, {"max": 25.1}, {"grew": 130 << 20}, {"dropped": 1}, {"own_bar_held": False}):
        assert not stalls.ok(dataclasses.replace(fine, **worse)), worse
    both = stalls.middle([fine, dataclasses.replace(fine, max=40.0, dropped=2)])
    assert (both.max, both.dropped) == (pytest.approx(32.45), 2)


def test_a_server_that_fails_is_reported_and_fails_the_run():
    done = subprocess.run([sys.executable, "-m", "perf.load.run", "--quick", "--only", "memory", "--nsqc", "false"],
                          cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 1
    assert "memory, nsqc: false" in done.stderr and "does not start" in done.stderr


def test_bars_and_ratios():
    rounds = [{"nsqc": {"publish rate": 4.0, "disk publish rate": 2.0, "bytes": 300.0}, "floor": {"publish rate": 8.0}},
              {"nsqc": {"publish rate": 3.0, "disk publish rate": 0.3, "bytes": 200.0}, "floor": {"publish rate": 10.0}},
              {"nsqc": {"publish rate": 2.0, "bytes": 281.0}, "floor": {}}]
    table = {row.metric.key: row for row in metrics.rows(rounds, ["nsqc", "floor"], "floor", own_floor=False)}
    assert table.keys() == {"publish rate", "disk publish rate", "bytes"}
    assert table["publish rate"].values == [3.0, 9.0]
    assert table["publish rate"].ratio == pytest.approx(0.4)
    assert table["disk publish rate"].ratio == pytest.approx(0.3)
    assert (table["disk publish rate"].ok, table["bytes"].ok) == (False, False)
    assert metrics.holds(Metric("x", "x", 1.0, at_least=True), 1.0)
    assert metrics.holds(Metric("x", "x", 1.0), 1.1) is False
    assert metrics.holds(Metric("x", "x"), 1.0) is None


def test_bars_of_a_log():
    assert log.ratio("x", 10, 6, 0.6).ok and not log.ratio("x", 10, 5.9, 0.6).ok
    assert log.ratio("x", 10, 13, 1.3, at_least=False).ok and not log.ratio("x", 10, 13.1, 1.3, at_least=False).ok
    assert not log.Row("x", 0.3, 1.4, 1.1, 1.0, False).ok


def test_lookupd_with_many_nodes_has_no_long_iteration():
    """CPU time, which a busy machine does not change: the limit is 50 ms."""
    out = run("perf.lookupd.run", "--nodes", "600", "--each", "100", "--topics", "300", "--watch")
    found = re.findall(r"^(\w+) +[\d.]+ s .* longest iteration ([\d.]+) ms", out, re.M)
    assert [name for name, _ in found] == ["storm", "lookup", "ping", "nodes", "topics", "debug", "flapping", "loss"]
    assert max(float(ms) for _, ms in found) < 50, out


def test_lookupd_gives_every_line():
    out = run("perf.lookupd.run", "--nodes", "50", "--each", "4", "--topics", "20", "--quick")
    assert re.findall(r"^(\w+) +[\d.]+ s .* longest /ping [\d.]+ ms", out, re.M) == [
        "storm", "lookup", "ping", "nodes", "flapping", "loss"]


def test_rivals_that_are_installed_give_every_figure():
    out = run("perf.rivals.run", "--quick", "--modes", "memory")
    rows = re.findall(r"^\| (nsqc|nsqd|Redis Streams|beanstalkd|JetStream|RabbitMQ) \S+ \|(.+)\|$", out, re.M)
    assert rows[0][0] == "nsqc"
    for name, cells in rows:
        assert len(re.findall(r"[\d.,]+ µs; [\d,]+/s", cells)) == 4, (name, cells)


def test_rivals_that_are_not_installed_have_a_line_each(monkeypatch):
    monkeypatch.setattr(servers, "found", lambda program: None)
    monkeypatch.setattr(servers, "RABBIT_SCRIPT", "/nonexistent")
    sides, missing = servers.kinds([sys.executable, "-m", "nsqc", "serve"], None)
    assert [kind.name for kind in sides] == ["nsqc"]
    assert [line.split(":")[0] for line in missing] == [
        f"skipped {name}" for name in ("nsqd", "Redis Streams", "beanstalkd", "JetStream", "RabbitMQ")]


def test_nodes_give_both_rates_for_one_and_two():
    out = run("perf.nodes", "--quick")
    assert re.findall(r"^\| (one|two) nsqc \| [\d,]+ \| [\d.]+ \| [\d,]+ \| [\d.]+ \|$", out, re.M) == ["one", "two"]
