"""The dashboard and the alert rules in packaging/ use only metrics that daemons and lookup servers export."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from nsqc.metrics.declared import EVERY, Type
from tests.support.pages import ROOT

DASHBOARD = ROOT / "packaging/grafana/nsqc.json"
RULES = ROOT / "packaging/prometheus/nsqc.rules.yml"
RULES_TEST = ROOT / "tests/metrics/rules.test.yml"
METRIC = re.compile(r"\b(nsqc_\w+)(?:\{([^}]*)\})?")
LISTED = re.compile(r"\b(?:by|on|ignoring|without) \(([^)]*)\)")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
FROM_PROMETHEUS = {"instance", "job", "le"}
VARIABLES = {"$__rate_interval": "5m", "${datasource}": "x", "$instance": ".*", "$topic": ".*", "$channel": ".*"}

promtool = pytest.mark.skipif(shutil.which("promtool") is None,
                              reason="needs promtool, of Debian's package prometheus (apt-get install prometheus)")


def dashboard() -> dict:
    """As Grafana imports it."""
    return json.loads(DASHBOARD.read_text())


def expressions() -> list[str]:
    """All queries of the dashboard."""
    page = dashboard()
    return [target["expr"] for panel in page["panels"] for target in panel.get("targets", ())] + [
        annotation["expr"] for annotation in page["annotations"]["list"]]


def rules() -> list[dict]:
    """All alerts."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def exported() -> dict[str, set[str]]:
    """The labels of every sample."""
    samples = {}
    for metric in EVERY:
        if metric.type is Type.HISTOGRAM:
            samples |= {f"{metric.name}{suffix}": {*metric.labels, *(("le",) if suffix == "_bucket" else ())}
                        for suffix in ("_bucket", "_count", "_sum")}
        else:
            samples[metric.sample] = set(metric.labels)
    return samples


def check(expression: str) -> int:
    """Checks every name and label; returns the number of names."""
    known, labels = exported(), set(FROM_PROMETHEUS)
    found = METRIC.findall(expression)
    for name, matchers in found:
        assert name in known, (name, expression)
        labels |= known[name]
        for label, _ in MATCHER.findall(matchers):
            assert label in known[name] | FROM_PROMETHEUS, (label, expression)
    for names in LISTED.findall(expression):
        assert {name.strip() for name in names.split(",")} <= labels, expression
    return len(found)


@pytest.mark.parametrize("expression", [*expressions(), *(rule["expr"] for rule in rules())])
def test_every_name_and_label_is_exported(expression):
    assert check(expression) or expression.startswith("up{")


def test_the_check_finds_what_is_wrong():
    for expression in ("nsqc_channel_deep", 'nsqc_channel_depth{kind="x"}', "sum by (kind) (nsqc_channel_depth)",
                       "nsqc_topic_messages", "sum(nsqc_channel_delivery_latency_seconds)"):
        with pytest.raises(AssertionError):
            check(expression)


def test_labels_that_alerts_show_are_there():
    for rule in rules():
        known = set(FROM_PROMETHEUS)
        for name, _ in METRIC.findall(rule["expr"]):
            known |= exported()[name]
        by = LISTED.search(rule["expr"])
        if by is not None and rule["expr"].startswith("histogram_quantile"):
            known = {name.strip() for name in by[1].split(",")}
        shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert shown <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_values_of_labels_in_queries_occur():
    from nsqc.broker.refusals import REASONS

    values = {"program": {"nsqd", "nsqlookupd"}, "result": {"ok", "failed"}, "state": {"active", "inactive"},
              "reason": set(REASONS), "job": {"nsqc", "nsqc-lookupd"}}
    for expression in [*expressions(), *(rule["expr"] for rule in rules())]:
        for label, value in MATCHER.findall(expression):
            if not value.startswith("$"):
                assert set(value.split("|")) <= values[label], (label, expression)


def test_the_dashboard_is_one_that_grafana_imports():
    page = dashboard()
    assert page["schemaVersion"] >= 38 and page["id"] is None and page["uid"] and page["title"] == "nsqc"
    panels = page["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] in ("row", "stat", "timeseries")
        assert panel["type"] == "row" or (panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
                                          and panel["fieldConfig"]["defaults"]["unit"])
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Overview", "Channels", "Latency", "Disk and memory", "Clients", "Lookup servers"]
    variables = [variable["name"] for variable in page["templating"]["list"]]
    assert variables == ["datasource", "instance", "topic", "channel"]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used - {"__rate_interval", "__all"} == set(variables)
    for variable in page["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+)\{.*\}, (\w+)\)", variable["query"]["query"]).groups()
        assert label in exported()[metric] | FROM_PROMETHEUS


@promtool
def test_promtool_accepts_the_rules():
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


@promtool
def test_the_rules_alert_when_they_should():
    done = subprocess.run(["promtool", "test", "rules", RULES_TEST], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
def test_every_alert_has_a_test():
    tested = {case["alertname"] for test in yaml.safe_load(RULES_TEST.read_text())["tests"]
              for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert tested == {rule["alert"] for rule in rules()}


@promtool
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path):
    plain = []
    for expression in expressions():
        for variable, text in VARIABLES.items():
            expression = expression.replace(variable, text)
        plain.append(expression)
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": [
        {"record": f"query:{number}", "expr": expression} for number, expression in enumerate(plain)]}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
