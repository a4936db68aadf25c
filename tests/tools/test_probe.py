"""`nsqc probe`: exit codes that health checks read."""

import http.server
import threading

from tests.support.lookupd import LookupServer
from tests.support.ports import free_port


def probe(tools, *words):
    done = tools.run("probe", *words, nodes=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_daemon_that_is_well_drained_and_gone(daemon, tools):
    node = daemon()
    address = f"127.0.0.1:{node.http_port}"
    assert probe(tools, address) == (0, "OK\n", "")
    assert probe(tools, "--ready", address) == (0, '{"ready":true,"reasons":[]}\n', "")
    node.post("/drain?keep=true")
    assert probe(tools, address) == (0, "OK\n", "")
    code, _, told = probe(tools, "--ready", address)
    assert code == 1 and told.startswith(f"nsqc probe: {address}: 503 ") and '"ready":false' in told
    node.stop()
    assert probe(tools, address) == (3, "", f"nsqc probe: {address}: Connection refused\n")


def test_a_lookup_server(tools, tmp_path):
    server = LookupServer(tmp_path / "log")
    try:
        assert probe(tools, f"127.0.0.1:{server.http_port}") == (0, "OK\n", "")
        assert probe(tools, "--ready", f"127.0.0.1:{server.http_port}")[0] == 0
    finally:
        server.close()


class NsqsOwn(http.server.BaseHTTPRequestHandler):
    """Has /ping and nothing else, like nsqd."""

    def do_GET(self):
        found = self.path == "/ping"
        body = b"OK" if found else b'{"message":"NOT_FOUND"}'
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Nothing is logged."""


def test_a_server_without_livez(tools):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NsqsOwn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert probe(tools, f"127.0.0.1:{server.server_port}") == (0, "OK\n", "")
    finally:
        server.shutdown()
        server.server_close()


def test_what_cannot_be_asked(tools):
    assert probe(tools, "nonsense")[0] == 2
    assert probe(tools, "--config", "/none/cfg")[0] == 2
    assert probe(tools, "127.0.0.1:1", "--config", "x")[0] == 2
    assert probe(tools, f"127.0.0.1:{free_port()}")[0] == 3
