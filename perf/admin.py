"""Measures the cost of the admin page: at the nodes, at the admin server and in a browser.

    python -m perf.admin [--topics 1000] [--channels 3] [--nodes 5] [--seconds 60]

Starts nodes, a lookup server and an admin server on loopback, and Chromium, driven by playwright.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

FIRST_PORT = 27150
TICKS = os.sysconf("SC_CLK_TCK")
PAINTS = 5


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def rss(pid: int) -> float:
    """Resident memory, MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def start(*words: str) -> subprocess.Popen[bytes]:
    """A server."""
    return subprocess.Popen([sys.executable, "-m", "nsqc", *words, "--log-level=warn"], stdin=subprocess.DEVNULL)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def fill(folder: Path, topics: int, channels: int) -> None:
    """The metadata of a node with this many topics."""
    folder.mkdir()
    listed = [{"name": f"team-{number % 40:02}.events-{number:05}", "paused": False, "channels": [
        {"name": f"channel-{each}", "paused": False} for each in range(channels)]} for number in range(topics)]
    (folder / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": listed}))


def wait(url: str, done, seconds: float = 300.0):
    """The first answer that satisfies done()."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            data = json.loads(get(url))
            if done(data):
                return data
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"{url} did not get there")


PAINTED = """() => {
    const first = performance.getEntriesByName("update")[0];
    const loaded = [performance.getEntriesByType("navigation")[0], ...performance.getEntriesByType("resource")];
    return [first.startTime + first.duration, loaded.reduce((sum, each) => sum + each.transferSize, 0)];
}"""
UPDATES = "performance.getEntriesByName('update').slice(1).map(each => each.duration)"


def measure(url: str, paths: tuple[str, ...]) -> None:
    """First content, bytes, and script time of an update."""
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for path in paths:
            paints = []
            for number in range(PAINTS):
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(f"{url}/{path}")
                page.wait_for_selector(".page tbody tr")
                paints.append(page.evaluate(PAINTED))
                while number == PAINTS - 1 and len(updates := page.evaluate(UPDATES)) < 5:
                    # As when a user looks at a tab again.
                    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
                    page.wait_for_timeout(1000)
                page.close()
            print(f"/{path}: content after {sorted(paints)[PAINTS // 2][0]:.0f} ms (median of {PAINTS}), "
                  f"{paints[0][1] / 1000:.0f} KB in all; an update's script {max(updates):.1f} ms at most", flush=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("topics", 1000), ("channels", 3), ("nodes", 5), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nsqc-admin-"))
    lookup_tcp, lookup_http, port = FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2
    servers = [start("lookupd", f"--tcp-address=127.0.0.1:{lookup_tcp}", f"--http-address=127.0.0.1:{lookup_http}")]
    nodes = []
    try:
        for number in range(given.nodes):
            tcp = FIRST_PORT + 10 + 2 * number
            fill(folder / str(number), given.topics, given.channels)
            nodes.append(start(
                "serve", f"--tcp-address=127.0.0.1:{tcp}", f"--http-address=127.0.0.1:{tcp + 1}",
                f"--data-path={folder / str(number)}", "--broadcast-address=127.0.0.1",
                f"--lookupd-tcp-address=127.0.0.1:{lookup_tcp}"))
        servers += nodes
        wait(f"http://127.0.0.1:{lookup_http}/nodes", lambda data: len(data["producers"]) == given.nodes)
        wait(f"http://127.0.0.1:{lookup_http}/topics", lambda data: len(data["topics"]) == given.topics)
        admin = start("admin", f"--http-address=127.0.0.1:{port}",
                      f"--lookupd-http-address=127.0.0.1:{lookup_http}")
        servers.append(admin)
        url = f"http://127.0.0.1:{port}"
        totals = wait(f"{url}/api/v1/overview", lambda data: data["totals"]["answering"] == given.nodes
                      and data["totals"]["topics"] == given.topics)["totals"]
        time.sleep(30)
        processes = [each.pid for each in (*nodes, admin)]
        before, at = [*map(cpu, processes)], time.monotonic()
        time.sleep(given.seconds)
        seconds = time.monotonic() - at
        spent = [(cpu(pid) - then) / seconds * 100 for pid, then in zip(processes, before, strict=True)]
        interval = json.loads(get(f"{url}/api/v1/overview"))["interval"]
        print(f"{totals['topics']} topics, {totals['channels']} channels, {given.nodes} nodes: every {interval} s; "
              f"CPU of a node {max(spent[:-1]):.2f} % at most, of the admin server {spent[-1]:.1f} %, its RSS "
              f"{rss(admin.pid):.0f} MB", flush=True)
        measure(url, ("", "topics", "topics/team-00.events-00000", "nodes"))
        print(f"RSS afterwards {rss(admin.pid):.0f} MB")
        began = time.monotonic()
        get(f"{url}/api/v1/topics?search=events-009&sort=depth&order=desc")
        print(f"a search with a sort: {(time.monotonic() - began) * 1000:.0f} ms")
    finally:
        for each in servers:
            each.terminate()
        for each in servers:
            each.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
