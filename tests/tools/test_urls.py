"""Addresses as URLs: lookup servers behind a path, TLS and a login; nodes; HTTP servers."""

import http.client
import json
import signal
import ssl
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nsqc.client import BadAddress, Consumer, LookupFailed, Producer, lookup, nodes, tls
from nsqc.client.address import http_address, without_login
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer
from tests.support.secure import self_signed
from tests.tools.conftest import Tool
from tests.tools.test_to_http import Server

LOGIN = "user:pass%40word"      # the password has an @
HEADER = "Basic " + b64encode(b"user:pass@word").decode()


class Proxy:
    """Forwards requests below a path to a server, for clients with the login. asked: paths. certificate: for TLS."""

    def __init__(self, target: str, path: str, certificate=None):
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                if self.headers["Authorization"] != HEADER:
                    self.answer(401, b"who are you?")
                elif not self.path.startswith(path):
                    self.answer(404, b"<html>nothing here</html>")
                else:
                    connection = http.client.HTTPConnection(target, timeout=60)
                    connection.request(self.command, self.path.removeprefix(path), headers={"Accept": self.headers["Accept"] or ""})
                    reply = connection.getresponse()
                    self.answer(reply.status, reply.read())
                    connection.close()

            do_POST = do_GET

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A lookup server, a node that is registered there with topic t, and two proxies before them."""
    folder = tmp_path_factory.mktemp("scene")
    self_signed(folder, "server", "localhost")
    found = LookupServer(folder / "lookupd.log")
    node = Daemon(folder / "data", f"--lookupd-tcp-address={found.tcp_address}", "--broadcast-address=127.0.0.1")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: found.found("t"), seconds=60)
    plain, secured = Proxy(found.http_address, "/nsq"), Proxy(found.http_address, "/a/b", folder / "server.pem")
    yield found, node, plain, secured, str(folder / "server.pem")
    for each in (plain, secured, node, found):
        each.close()


def urls(scene) -> dict[str, tuple[str, ...]]:
    """Command lines that mean the lookup server."""
    found, _, plain, secured, certificate = scene
    return {
        "address": (found.http_address,), "scheme": (f"http://{found.http_address}",), "slash": (f"http://{found.http_address}/",),
        "path": (f"http://{found.http_address}/lookup",), "path without scheme": (f"{found.http_address}/lookup",),
        "login": (f"http://{LOGIN}@127.0.0.1:{plain.port}/nsq/lookup",), "folder": (f"http://{LOGIN}@127.0.0.1:{plain.port}/nsq/",),
        "https": (f"https://{LOGIN}@localhost:{secured.port}/a/b/lookup", "--tls-ca", certificate),
        "https, any certificate": (f"https://{LOGIN}@localhost:{secured.port}/a/b/", "--tls-insecure")}


KINDS = ("address", "scheme", "slash", "path", "path without scheme", "login", "folder", "https", "https, any certificate")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words, text", [("topic list", "t "), ("channel list t", "c "), ("nodes", "127.0.0.1:"),
                                         ("stat t c -n 1 --interval 1ms", "ingress")])
def test_lookup_servers(inside, monkeypatch, scene, kind, words, text):
    monkeypatch.setenv("NSQC_CONFIG", "/nowhere")
    url, *more = urls(scene)[kind]
    done = inside(*words.split(), "--nsqlookupd", url, *more)
    assert (done.returncode, done.stderr) == (0, "") and text in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer(tools, scene, kind):
    node, (url, *more) = scene[1], urls(scene)[kind]
    node.connect().pub("t", b"x")
    done = tools.run("tail", "t", "--channel", "c", "-n", "1", "--nsqlookupd", url, *more, nodes=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x\n", b"")


def test_an_original_keeps_the_path(tools, links, scene):
    """As go-nsq: the path is that of /lookup; nsq_to_file also lists topics."""
    _, node, plain, _, _ = scene
    node.connect().pub("t", b"there")
    plain.asked.clear()
    tools.running.append(Tool([links("nsq_tail"), "--topic=t", "--channel=c", "-n=1",
                               f"--lookupd-http-address=http://{LOGIN}@127.0.0.1:{plain.port}/nsq/lookup"], tools.folder))
    assert (tools.running[-1].wait(), tools.running[-1].out) == (0, b"there\n")
    assert plain.asked == ["/nsq/lookup?topic=t"]


def test_tls_for_nsqd_is_not_for_nsqlookupd(inside, scene):
    """nsqlookupd speaks no TLS: with --tls, too, its address means HTTP."""
    done = inside("topic", "list", "--tls", "--tls-insecure", "--nsqlookupd", scene[0].http_address)
    # The lookup is answered, and the node has no HTTPS.
    assert done.returncode == 3 and "no nsqd answers" in done.stderr


@pytest.mark.parametrize("url, text", [
    ("ftp://lookup", "'ftp://lookup' is neither HOST:PORT nor an http or https URL"), ("http://", "is not a URL such as"),
    ("http://u:secret@h:99999", "'http://h:99999' is neither"), ("http://u:sec/ret@h:1", "'http://h:1' is neither"),
    ("http://u:secret@h:1/a b", "'http://h:1/a b' is not a URL"), ("lookup", "its port is missing"),
    ("http://h:1/\x1b[2J", "is not a URL")])
def test_addresses_that_are_none(inside, url, text):
    done = inside("topic", "list", "--nsqlookupd", url)
    assert done.returncode == 2 and text in done.stderr and "sec" not in done.stderr.replace("a second", "")
    with pytest.raises(BadAddress):
        Consumer("t", "c", nsqlookupd=url)


def test_the_login_is_not_shown(inside, scene):
    wrong = f"http://user:hidden@127.0.0.1:{scene[2].port}/nsq/lookup"
    for words in (("topic", "list"), ("tail", "t", "--wait"), ("nodes",)):
        done = inside(*words, "--nsqlookupd", wrong)
        assert done.returncode == 3 and "401" in done.stderr and "hidden" not in done.stderr
    gone = "http://user:hidden@127.0.0.1:1/lookup"
    for words in (("topic", "list"), ("tail", "t", "--wait")):
        done = inside(*words, "--nsqlookupd", gone)
        assert done.returncode == 3 and "refused" in done.stderr and "hidden" not in done.stderr


def test_http_addresses_of_nodes(inside, tools):
    """For nsqd the path is a folder: every call is below it."""
    proxy = Proxy(tools.http, "/nsqd")
    topic = tools.topic()
    shown = f"http://127.0.0.1:{proxy.port}/nsqd"
    where = ("--nsqd", tools.tcp, "--http", f"http://{LOGIN}@127.0.0.1:{proxy.port}/nsqd")
    try:
        assert topic in inside("topic", "list", *where).stdout
        done = inside("topic", "pause", topic, *where)
        assert (done.returncode, done.stdout) == (0, f"{shown}: topic {topic} paused\n")
        assert json.loads(inside("nodes", *where, "--json").stdout)["node"] == shown
        done = inside("topic", "list", "--nsqd", tools.tcp, "--http", f"http://127.0.0.1:{proxy.port}/nsqd")
        assert done.returncode in (1, 3) and f"{shown}: 401" in done.stderr
    finally:
        proxy.close()


# ---------------------------------------------------------------------- the client

def test_the_client(scene):
    found, node, plain, secured, certificate = scene
    address = f"127.0.0.1:{node.tcp_port}"
    for url, context in ((f"http://{found.http_address}", None), (f"http://{LOGIN}@127.0.0.1:{plain.port}/nsq/lookup", None),
                         (f"https://{LOGIN}@localhost:{secured.port}/a/b/lookup", tls(certificate))):
        assert lookup("t", [url], tls=context) == nodes([url], tls=context) == [address]
    with pytest.raises(LookupFailed, match="certificate verify failed: self-signed certificate; only the system's authorities are trusted"):
        nodes([f"https://{LOGIN}@localhost:{secured.port}/a/b/lookup"])
    with Producer(nsqlookupd=f"http://{LOGIN}@127.0.0.1:{plain.port}/nsq/") as producer:
        producer.publish("t", b"by the client")
    with (Consumer("t", "c", nsqlookupd=f"http://{LOGIN}@127.0.0.1:{plain.port}/nsq/") as consumer,
          next(iter(consumer)) as message):
        assert message.body == b"by the client"


@pytest.mark.parametrize("text, shown, login, lookup_path, nodes_path", [
    ("h:1", "h:1", "", "/lookup?topic=t", "/nodes"), ("http://h:1/x/lookup", "http://h:1/x/lookup", "", "/x/lookup?topic=t", "/x/nodes"),
    ("http://h/x", "http://h/x", "", "/x?topic=t", "/nodes"), ("https://a:b@h/x/?k=v", "https://h/x/?k=v", "a:b", "/x/lookup?topic=t&k=v", "/x/nodes?k=v"),
    ("http://a@h", "http://h", "a", "/lookup?topic=t", "/nodes"), ("http://[::1]:5", "http://[::1]:5", "", "/lookup?topic=t", "/nodes"),
    ("http://h/@me", "http://h/@me", "", "/@me?topic=t", "/nodes")])
def test_parts(text, shown, login, lookup_path, nodes_path):
    found = http_address(text)
    assert (found.text, found.login) == (shown, login)
    assert (found.beside("/lookup?topic=t"), found.beside("/nodes")) == (lookup_path, nodes_path)
    assert "://" not in text or without_login(text) == shown


# ---------------------------------------------------------------------- to-http

@pytest.mark.parametrize("words, header", [((), HEADER), (("--header", "Authorization: Bearer x"), "Bearer x")])
def test_a_login_of_a_server(tools, words, header):
    topic, server = tools.topic("nsq_to_http"), Server()
    tools.publish(topic, b"x")
    running = tools.start("to-http", topic, "--post", server.url.replace("//", f"//{LOGIN}@") + "/in", *words)
    tools.drained(topic, "nsq_to_http")
    assert running.stop(signal.SIGTERM) == 0 and running.err == ""
    [(path, headers, body)] = server.requests
    assert (path, headers["Authorization"], headers["Host"], body) == ("/in", header, server.url[7:], b"x")
    server.close()


def test_the_login_of_a_server_is_not_shown(tools, inside, links):
    topic, server, other = tools.topic("nsq_to_http"), Server(), Server()
    server.statuses = other.statuses = [503]
    urls = [each.url.replace("//", f"//{LOGIN}@") + "/in" for each in (server, other)]
    tools.publish(topic, *[b"x"] * 30)
    tools.running.append(Tool([links("nsq_to_http"), f"--topic={topic}", f"--nsqd-tcp-address={tools.tcp}", *(f"--post={url}" for url in urls),
                               "--status-every=10", "--consumer-opt=default_requeue_delay,10ms"], tools.folder))
    running = tools.running[-1].says(f"[{server.url}/in]: finished 10").says("status 503; the message will be retried")
    assert "pass" not in running.err
    assert server.requests[0][1]["Authorization"] == HEADER
    for each in (server, other):
        each.close()
    for url in ("http://user:hidden@h:x/", "http://user:sec/ret@h/", "http://user:hidden@/"):
        done = inside("to-http", topic, "--post", url, *tools.nodes)
        assert done.returncode == 2 and "sec" not in done.stderr
