"""A real Prometheus scrapes a daemon under load and a lookup server, with the alert rules of packaging/."""

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from contextlib import closing

import pytest

from tests.metrics.test_dashboard import RULES, VARIABLES, expressions
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("prometheus") is None, reason=(
    "needs Prometheus, of Debian's package prometheus (apt-get install prometheus)"))]

CONFIG = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - {job_name: nsqc, static_configs: [{targets: ["127.0.0.1:%d"]}]}
  - {job_name: nsqc-lookupd, static_configs: [{targets: ["127.0.0.1:%d"]}]}
"""


class Prometheus:
    """A Prometheus on a free port, with its data in a folder."""

    def __init__(self, folder, http_port: int, lookupd_port: int) -> None:
        config = folder / "prometheus.yml"
        config.write_text(CONFIG % (RULES, http_port, lookupd_port))
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def api(self, path: str, **query: str):
        """The data of an answer; None until it listens."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, expression: str) -> list[float]:
        """The values now."""
        data = self.api("query", query=expression)
        return [float(one["value"][1]) for one in data["result"]] if data else []

    def close(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        self.log.close()


@pytest.fixture
def fleet(daemon, tmp_path):
    """A lookup server, a daemon that is registered there, and a Prometheus that scrapes both."""
    lookupd = LookupServer(tmp_path / "lookupd.log")
    node = daemon(f"--lookupd-tcp-address={lookupd.tcp_address}", "--broadcast-address=127.0.0.1")
    prometheus = Prometheus(tmp_path, node.http_port, lookupd.http_port)
    yield node, prometheus
    prometheus.close()
    lookupd.close()


def load(node, stop: threading.Event) -> None:
    """Publishes and consumes until it is stopped."""
    producer, consumer = node.connect(), node.connect().sub("orders", "billing", 200)
    while not stop.is_set():
        producer.pub("orders", *[b"x" * 200] * 100)
        consumer.messages(100, finish=True)


def test_prometheus_scrapes_a_daemon_under_load(fleet):
    node, prometheus = fleet
    stop = threading.Event()
    worker = threading.Thread(target=load, args=(node, stop))
    worker.start()
    try:
        node.post("/topic/create?topic=idle")
        node.post("/channel/create?topic=idle&channel=nobody")
        node.http("POST", "/pub?topic=b@d", b"x")
        wait_until(lambda: prometheus.query('sum(up{job=~"nsqc.*"})') == [2])
        wait_until(lambda: prometheus.query("sum(rate(nsqc_topic_messages_total[10s])) > 100"))
        (p99,) = wait_until(lambda: prometheus.query(
            "histogram_quantile(0.99, sum by (le) (rate(nsqc_channel_processing_latency_seconds_bucket[10s]))) > 0"))
        assert p99 < 60
        assert prometheus.query('nsqc_lookupd_producers{state="active"}') == [1]
        wait_until(lambda: prometheus.query('nsqc_publishes_refused_total{reason="invalid"}') == [1])
        (target, *_), _ = sorted(prometheus.api("targets")["activeTargets"], key=lambda one: one["scrapePool"]), None
        assert (target["health"], target["lastError"]) == ("up", "")
        # Every family has its type and its text.
        described = prometheus.api("metadata")
        assert described["nsqc_channel_processing_latency_seconds"][0]["type"] == "histogram"
        assert described["nsqc_topic_messages"][0]["type"] == "counter" or (
            described["nsqc_topic_messages_total"][0]["type"] == "counter")
        # Every query of the dashboard is valid, and those that need no failure return data.
        found = 0
        for expression in expressions():
            for variable, text in VARIABLES.items():
                expression = expression.replace(variable, text)
            assert prometheus.api("query", query=expression) is not None, expression
            found += bool(prometheus.query(expression))
        assert found > 30
        assert {rule["health"] for group in prometheus.api("rules")["groups"] for rule in group["rules"]} == {"ok"}
    finally:
        stop.set()
        worker.join()
    # Its counts equal the daemon's.
    time.sleep(2)
    assert prometheus.query('nsqc_topic_messages_total{topic="orders"}') == [node.stats("orders")["message_count"]]
    node.kill()
    wait_until(lambda: prometheus.query('up{job="nsqc"}') == [0])
    wait_until(lambda: "NsqcDown" in {alert["labels"]["alertname"] for alert in prometheus.api("alerts")["alerts"]})
