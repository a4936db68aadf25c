"""The perf harness works: every bench and every workload produces results. This file does not judge them.

Slow: each bench runs, if only for a moment.
"""

import dataclasses
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import perf
from perf import capacity
from perf.load import metrics
from perf.load.metrics import METRICS, Metric
from perf.log import work as log
from perf.micro import run as micro
from perf.programs import client, floor
from perf.stalls import run as stalls
from perf.stalls.cases import CASES
from perf.stalls.stage import Result
from perf.transports.run import TRANSPORTS

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


def test_every_compiled_room_of_the_hot_path_has_a_bench():
    assert {"parser", "inbuf", "mpub", "framer", "names", "heap", "inflight", "fifo", "slab", "guid", "diskqueue", "topic", "log",
            "latency"} <= set(micro.names())


@pytest.mark.long
def test_load_gives_every_metric(tmp_path):
    out = run("perf.load.run", "--quick", "--json", str(tmp_path / "rounds.json"))
    for metric in METRICS:
        if "wrk" not in metric.key:
            line = next(line for line in out.splitlines() if line.startswith(metric.title))
            assert re.match(r" +-?[\d,.]+( |$)", line.removeprefix(metric.title)), line
    (only,) = json.loads((tmp_path / "rounds.json").read_text())["rounds"]
    assert only["nsqc"].keys() >= {metric.key for metric in METRICS if "wrk" not in metric.key}
    assert {"publish rate", "consume rate", "single rate", "http rate"} <= only["floor"].keys()


@pytest.mark.long
def test_load_beside_other_servers(tmp_path):
    out = run("perf.load.run", "--quick", "--markdown", "--only", "memory,latency", "--limit", str(floor()),
              "--against", f"{sys.executable} -m nsqc serve")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert rows[0] == ["metric", "nsqc", "floor", "against", "ratio", "bar", "ok"]
    publish = next(row for row in rows if row[0].startswith("publish in memory"))
    assert all(publish)
    latency = next(row for row in rows if row[0].startswith("PUB to delivery, RDY 100"))
    assert latency[1] and not latency[2] and latency[3]


@pytest.mark.long
def test_sizes_give_every_metric_and_a_chart(tmp_path):
    results = tmp_path / "sizes.json"
    out = run("perf.sizes.run", "--quick", "--sizes", "100,65536", "--json", str(results))
    rows = [line.split("|")[1:-1] for line in out.splitlines() if re.match(r"\| [\d,]+ B \|", line)]
    assert len(rows) == 7 * 2
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)
    run("perf.sizes.chart", str(results), str(tmp_path))
    for theme in ("light", "dark"):
        chart = ElementTree.parse(tmp_path / f"chart-{theme}.svg").getroot()
        words = [element.text for element in chart.iter("{http://www.w3.org/2000/svg}text")]
        # A number for each bar: sizes, kinds of work, sides.
        assert len([word for word in words if re.fullmatch(r"[\d.]+ ?[kM]?/s", word)]) == 2 * 3 * 2
        assert any("round" in word for word in words)


@pytest.mark.long
def test_transports_give_every_metric():
    out = run("perf.transports.run", "--quick")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == list(TRANSPORTS)
    assert all(float(cell.replace(",", "")) > 0 for row in rows[2:] for cell in row[1:])
    assert out.count("goal") == 2


def test_tools_give_a_rate_each():
    out = run("perf.tools.run", "--quick", "--only", "to-file,disk floor")
    rates = re.findall(r"^ +(client|to-file|disk floor) +([\d,]+) ", out, re.M)
    assert [name for name, _ in rates] == ["client", "to-file", "disk floor"]
    assert all(int(rate.replace(",", "")) > 0 for _, rate in rates)


@pytest.mark.long
def test_stalls_give_every_case(tmp_path):
    """On a slow disk a pause is answered after an open, a write, an fsync and a rename, 30 ms each."""
    out = run("perf.stalls.run", "--quick", "--markdown", "--json", str(tmp_path / "stalls.json"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == [case.title for case in CASES.values()]
    assert all(float(row[4]) > 0 for row in rows[2:])
    results = json.loads((tmp_path / "stalls.json").read_text())["cases"]
    assert results.keys() == {*CASES, "slow-disk"}
    assert all(results[name]["nsqc"]["clients"] >= 10 for name in CASES)
    assert results["slow-disk"]["nsqc"]["slow"]["pause_s"] >= 0.12


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


def test_the_client_refuses_nonsense():
    for arguments in ([], ["dance"], ["pub", "-c", "0"], ["pub", "-t", "7000"], ["sub", "-T", "t" * 65]):
        assert subprocess.run([client(), *arguments], capture_output=True).returncode == 2


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


@pytest.mark.long
def test_spark_gives_every_metric():
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \|", run("perf.spark.run", "--rows", "5000", "--rounds", "1", "--cold"), re.M)
    # So few rows may take the node less than a tick of its processor's clock.
    assert len(rows) == 47 and all(int(rate.replace(",", "")) > 0 or ": ns of " in name for name, rate in rows), rows


@pytest.mark.long
def test_scale():
    out = run("perf.scale.run", "--topics", "200")
    for name in ("start", "start after a kill", "create topic", "pause topic", "delete topic", "stats",
                 "publish, new topics"):
        assert re.search(rf"^{name} +[\d.]+ s", out, re.M), name


@pytest.mark.long
def test_log_gives_every_metric(tmp_path):
    results = tmp_path / "log.json"
    out = run("perf.log.run", "--quick", "--json", str(results))
    rows = json.loads(results.read_text())["rows"]
    assert len(rows) == 11 and all(row["value"] > 0 or "memory" in row["title"] for row in rows)
    assert re.search(r"^processors taken away: [\d.]+ % of the time, [\d.]+ ms at most; 7 KB appended with fdatasync: "
                     r"[\d,]+ µs$", out, re.M)
    assert len(re.findall(r"^(?:ok|MISSED): ", out, re.M)) == len(rows)


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
