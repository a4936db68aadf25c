"""The operations pages, run as the scripts they are."""

import re

import pytest
import yaml

from tests.support.pages import ROOT, blocks
from tests.support.shell import Shell

RULES = ROOT / "packaging/prometheus/nsqc.rules.yml"
FLAGS = "--tcp-address=127.0.0.1:4150 --http-address=127.0.0.1:4151"


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


def column(told: str, title: str) -> dict[str, int]:
    """A column of the last table that a tool has printed, by the first one."""
    lines = told.splitlines()
    first = max(number for number, line in enumerate(lines) if line.startswith(("TOPIC ", "CHANNEL ")))
    at = re.split(r" {2,}", lines[first]).index(title)
    return {(row := re.split(r" {2,}", line))[0]: int(row[at].replace(",", "")) for line in lines[first + 1:]}


def test_backup_restore_and_moving(shell):
    page = "docs/migration.md"
    titles = ("A node to try it on", "A running node", "A stopped node", "Restore", "Moving a node", "A copy of every message")
    steps = [block for title in titles for block in blocks(page, "bash", title)]
    told = shell.run(*steps)
    made, _, drained, restored, snapshot, moved, _ = told
    assert column(made, "DEPTH") == {"billing": 100}
    assert "drained and stopped" in drained
    # A stop has written everything; a snapshot lacks messages in memory.
    assert column(restored, "IN CHANNELS") == {"events": 100, "orders": 100}
    found = column(snapshot, "IN CHANNELS")
    assert found["events"] == 100 and 80 <= found["orders"] < 100
    assert column(moved, "DEPTH") == {"billing": found["orders"]}
    archived = sorted(int(line) for path in (shell.folder / "archive").iterdir() for line in path.read_text().split())
    assert archived == list(range(101, 111))


def test_a_rolling_migration_and_the_way_back(shell):
    page = "docs/migration.md"
    steps = [block for title in ("A fleet to try it on", "One node after the other") for block in blocks(page, "bash", title)]
    told = shell.run(*steps)
    assert "nothing is lost" in told[-1]
    assert int((shell.folder / "published").read_text()) > 10
    for node in "abc":
        log = (shell.folder / f"{node}.log").read_text()
        assert "[old] " in log and "[new] " in log and log.count("NSQ: bye") >= 1
    assert (shell.folder / "b.log").read_text().rindex("[old] ") > (shell.folder / "b.log").read_text().rindex("[new] ")


UP = "until nsqc probe 127.0.0.1:4151 2>probe.log; do sleep 0.1; done"


def test_an_upgrade_by_packages(shell):
    """apt stops the old daemon and starts the new one, as the package's scripts do through systemctl."""
    drain, = blocks("docs/migration.md", heading="With packages")
    drained = shell.run(
        f"printf 'http_address = \"127.0.0.1:4151\"\\n' >nsqc.cfg\nexport NSQC_CONFIG=$PWD/nsqc.cfg\nnsqc serve {FLAGS} 2>old.log &\n{UP}",
        f"apt() {{ curl -s -o ready.txt -w '%{{http_code}}\\n' http://127.0.0.1:4151/readyz; kill $!; wait $!; nsqc serve {FLAGS} 2>new.log & }}\n{drain}")
    assert "503" in drained[1] and "drained" in drained[1]
    assert "NSQ: bye" in (shell.folder / "old.log").read_text() and "listening" in (shell.folder / "new.log").read_text()


def test_a_config_file_of_nsqd(shell):
    commands, = blocks("docs/migration.md", heading="What stays as it is")
    told, = shell.run("printf 'max_rdy_count = 9\\nmax_rdy = 1\\n' >nsqd.cfg\n" + commands.replace("/etc/nsq/", ""))
    assert "unknown key 'max_rdy'" in told and "max_rdy_count" in told.partition("unknown key")[2]


def test_the_calls_of_the_operations_page(shell):
    page = "docs/operations.md"
    rules, = [block for block in blocks(page, heading="Topic rules") if block.startswith("curl")]
    drain, = blocks(page, heading="Drain")
    zones, = blocks(page, heading="Zones")
    told = shell.run(f"{zones.strip()} {FLAGS} 2>nsqc.log &\n{UP}", rules, f"{drain}\nwait $!")
    assert '"36h' in told[1] and "NSQ: bye" in (shell.folder / "nsqc.log").read_text()


# Blocks about tables, service managers, pip or builds; tests/packaging runs these.
NOT_SCRIPTS = {"installing": ("make portable", "pip install"), "operations": ("systemctl stop nsqc", "systemctl enable --now nsqc@1", "34 MB", "messages waiting"),
               "monitoring": ("curl -fsS http://127.0.0.1:4151/metrics ", "WARNING: LOOP: ", "systemctl "),
               "security": ("nsqc serve --tls-cert=", "nsqc access token  ", "curl -u ")}


@pytest.mark.parametrize("name", ["installing", "migration", "monitoring", "operations", "security"])
def test_every_block_of_the_page_is_run(name):
    """A test here, in tests/firsthour or in tests/packaging runs it; a new block needs one."""
    page, run = f"docs/{name}.md", []
    for kind, title in RUN[name]:
        run += blocks(page, kind, title)
    rest = [block for block in blocks(page) if block not in run and not block.startswith(NOT_SCRIPTS.get(name, ()))]
    data = [block for kind in ("toml", "yaml", "json") for block in blocks(page, kind)]
    assert [block for block in rest if block not in data] == []


# Language and heading of the blocks that tests run.
RUN = {
    "installing": [("", "Download and run"), ("", "apt repository"),
                   *(("bash", title) for title in ("The image", "In place of nsqio/nsq", "Kubernetes"))],
    "migration": [("bash", ""), ("", "What stays as it is"), ("", "With packages")],
    "monitoring": [("", "Health"), ("", "Statistics"), ("bash", "Alerts"), ("", "Log lines")],
    "operations": [("", title) for title in ("The first hour", "Drain", "Topic rules", "Zones")],
    "security": [("bash", "Checklist")],
}


def alerts() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_alert_has_a_section():
    sections = re.findall(r"^### (Nsqc\w+)$", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(rule["alert"] for rule in alerts())
    for rule in alerts():
        url = rule["annotations"]["runbook_url"]
        assert url == f"file:///usr/share/doc/nsqc/docs/monitoring.md#{rule['alert'].lower()}"


def test_the_commands_beside_the_alerts(shell):
    start = f"nsqc serve {FLAGS} --http-extended-api=all 2>nsqc.log &\nuntil nsqc probe 127.0.0.1:4151 2>probe.log; do sleep 0.1; done"
    config = f'printf \'tcp_address = "127.0.0.1:4150"\\nhttp_address = "127.0.0.1:4151"\\n\' >nsqc.cfg\nexport NSQC_CONFIG=$PWD/nsqc.cfg\nunset NSQC_CONFIG\n{start}\nexport NSQC_CONFIG=$PWD/nsqc.cfg\nnsqc topic create orders'
    told = shell.run(config, *blocks("docs/monitoring.md", "bash", "Alerts"))
    assert "OK" in told[1] and '"ready":true' in told[1].replace(" ", "")


def test_the_security_checklist(shell):
    told = shell.run(*blocks("docs/security.md", "bash", "Checklist"))
    assert told[-1].splitlines()[-3:] == ["401", "401", "200"]
