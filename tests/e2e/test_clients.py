"""Clients from the registries, unchanged: pynsq, ansq, gnsq (Python), nsqjs and squeaky (node)."""

import asyncio
import fcntl
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import ansq
import pytest

from tests.peers.authd import AuthServer, reply
from tests.peers.conftest import factory
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates
from tests.tools.calling import call

authd = factory(AuthServer)

NSQJS = Path(__file__).parent / "nsqjs"


@pytest.fixture(scope="session")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


def secure(daemon, certs, *flags):
    return daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--https-address=127.0.0.1:0", *flags)


def upgrades(node, layer: str) -> int:
    """How many connections were upgraded to TLS, deflate or snappy."""
    return node.log.count(f"upgrading connection to {layer}\n")


@pytest.fixture(params=["memory", "log"])
def node(request, daemon):
    """A daemon whose topics are kept in memory or in a log."""
    return daemon(f"--topic-storage={request.param}")


# ---------------------------------------------------------------------- nsqjs


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder of the clients for node, installed."""
    assert shutil.which("node"), "these tests need node and npm (Debian: apt-get install nodejs npm)"
    with open(NSQJS / "package.json") as file:
        fcntl.flock(file, fcntl.LOCK_EX)    # tests may run in several processes
        if not all((NSQJS / "node_modules" / name).is_dir() for name in ("nsqjs", "squeaky")):
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=NSQJS, check=True, timeout=300)
    return NSQJS


@pytest.fixture(scope="session")
def nsqjs(modules):
    def drive(node, scenario: str, **options) -> dict:
        done = subprocess.run(["node", "drive.js", str(node.tcp_port), scenario, json.dumps(options)], cwd=modules,
                              capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, done.stderr + done.stdout + node.log[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return drive


def test_nsqjs_publish_and_two_channels(node, nsqjs):
    assert sorted(nsqjs(node, "fan")["seen"]) == sorted(["single", "a", "b", "c"] * 2)


def test_nsqjs_finds_nodes_that_come_and_go(daemon, modules, tmp_path):
    server = LookupServer(tmp_path / "lookupd.log")

    def node_with(body: bytes) -> Daemon:
        one = daemon(f"--lookupd-tcp-address={server.tcp_address}", "--broadcast-address=127.0.0.1")
        one.connect().ok("PUB orders", body)
        return one

    def finished(one: Daemon) -> bool:
        channels = one.stats("orders")["channels"]
        return any(channel["channel_name"] == "work" and not channel["depth"] + channel["in_flight_count"]
                   for channel in channels)

    try:
        first = node_with(b"one")
        wait_until(lambda: server.found("orders"), "the first node registers")
        options = json.dumps({"lookupdHTTPAddresses": [server.http_address]})
        with subprocess.Popen(["node", "drive.js", "1", "found", options], cwd=modules, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as client:
            wait_until(lambda: finished(first), "it is found")
            second = node_with(b"two")
            wait_until(lambda: finished(second), "the second node is found")
            assert first.stop() == 0        # exits midway, its consumer connected
            node_with(b"three")
            printed, complaints = client.communicate(timeout=WAIT_SECONDS)
        assert json.loads(printed.splitlines()[-1])["seen"] == ["one", "two", "three"], complaints
    finally:
        server.close()


def test_squeaky_publishes_batches(node, modules):
    # The size it declares for a batch omits the count and the sizes.
    done = subprocess.run(["node", "squeaky.js", str(node.tcp_port)], cwd=modules, capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    assert sorted(body["n"] for body in json.loads(done.stdout)["seen"]) == [1, 2, 3, 4, 5, 6]


def test_nsqjs_requeue(node, nsqjs):
    assert sorted(nsqjs(node, "requeue")["seen"]) == [["x", 1], ["x", 2], ["y", 1], ["y", 2]]


def test_nsqjs_defer_and_touch(node, nsqjs):
    """Slow: a message is touched four times, a second apart."""
    answer = nsqjs(node, "defer")
    assert answer["seen"] == [["x", 1]]
    assert answer["waited"] >= 650


@pytest.mark.parametrize("transport", [
    {"tls": True}, {"deflate": True}, {"snappy": True}, {"tls": True, "deflate": True}, {"tls": True, "snappy": True},
], ids="+".join)
def test_nsqjs_encrypted_and_compressed(daemon, certs, nsqjs, transport):
    node = secure(daemon, certs)
    answer = nsqjs(node, "fan", tlsVerification=False, **transport)
    assert sorted(answer["seen"]) == sorted(["single", "a", "b", "c"] * 2)
    for layer in transport:
        wait_until(lambda layer=layer: upgrades(node, layer.replace("tls", "TLS")) == 3)


@pytest.mark.parametrize("transport", [{}, {"tls": True, "snappy": True}], ids="+".join)
def test_nsqjs_authorised(daemon, certs, authd, nsqjs, transport):
    server = authd()
    node = secure(daemon, certs, f"--auth-http-address={server.address}")
    answer = nsqjs(node, "fan", authSecret="open sesame", tlsVerification=False, **transport)
    assert sorted(answer["seen"]) == sorted(["single", "a", "b", "c"] * 2)
    assert [query.facts["secret"] for query in server.asked] == ["open sesame"] * 3
    assert {query.facts["tls"] for query in server.asked} == {"true" if transport else "false"}


# ---------------------------------------------------------------------- pynsq

PYNSQ = """
import json, sys, time
import nsq, tornado.ioloop

PORT = int(sys.argv[1])
ADDRESS = [f"127.0.0.1:{PORT}"]
seen = []

def finish(**extra):
    print(json.dumps({"seen": seen, **extra}), flush=True)
    tornado.ioloop.IOLoop.current().stop()

def later(seconds, call):
    tornado.ioloop.IOLoop.current().call_later(seconds, call)

def publish(*calls, **options):
    writer = nsq.Writer(ADDRESS, **options)
    def when_connected():
        if not writer.conns:    # which has those that have finished their upgrades
            return later(0.1, when_connected)
        for name, *arguments in calls:
            getattr(writer, name)(*arguments)
    when_connected()
"""


def pynsq(node, script: str) -> dict:
    code = PYNSQ + textwrap.dedent(script) + "\nlater(150, lambda: sys.exit('nothing more came'))\nnsq.run()\n"
    done = subprocess.run([sys.executable, "-c", code, str(node.tcp_port)], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr + node.log[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_pynsq_publish_multi_publish_and_many_consumers(node):
    answer = pynsq(node, """
        def handle(message):
            seen.append(message.body.decode())
            if len(seen) == 205:
                finish()
            return True
        readers = [nsq.Reader("t", "c", handle, nsqd_tcp_addresses=ADDRESS, max_in_flight=20) for _ in range(5)]
        publish(*[("pub", "t", b"p%d" % n) for n in range(5)], ("mpub", "t", [b"m%d" % n for n in range(200)]))
    """)
    assert sorted(answer["seen"]) == sorted([f"p{n}" for n in range(5)] + [f"m{n}" for n in range(200)])


def test_pynsq_requeue_touch_timeout_and_deferred(node):
    """Slow: a message is touched four times, more than a second apart."""
    answer = pynsq(node, """
        began = time.time()
        finished = set()
        def finish_message(message):
            message.finish()
            finished.add(message.body)
            if len(finished) == 4:
                later(1, lambda: finish(waited=waited))     # a second for deliveries that must not happen
        def handle(message):
            body = message.body.decode()
            seen.append([body, message.attempts])
            if body == "requeued" and message.attempts == 1:
                message.requeue(backoff=False, time_ms=200)
            elif body == "timed out" and message.attempts == 1:
                message.enable_async()
            elif body == "touched":
                message.enable_async()
                def touch(left):
                    if left:
                        message.touch()
                        later(1.2, lambda: touch(left - 1))
                    else:
                        finish_message(message)
                later(1.2, lambda: touch(3))
            else:
                if body == "deferred":
                    global waited
                    waited = time.time() - began
                finish_message(message)
        reader = nsq.Reader("t", "c", handle, nsqd_tcp_addresses=ADDRESS, max_in_flight=20, msg_timeout=3)
        publish(("mpub", "t", [b"requeued", b"timed out", b"touched"]), ("dpub", "t", 900, b"deferred"))
    """)
    assert sorted(answer["seen"]) == [["deferred", 1], ["requeued", 1], ["requeued", 2], ["timed out", 1],
                                      ["timed out", 2], ["touched", 1]]
    assert answer["waited"] > 0.9


@pytest.mark.parametrize("transport", ["tls_v1=True", "deflate=True", "snappy=True", "tls_v1=True, snappy=True",
                                       "tls_v1=True, deflate=True, deflate_level=3"])
def test_pynsq_encrypted_and_compressed(daemon, certs, transport):
    node = secure(daemon, certs)
    answer = pynsq(node, f"""
        import ssl
        options = dict({transport})
        if "tls_v1" in options:
            options["tls_options"] = {{"cert_reqs": ssl.CERT_NONE}}
        def handle(message):
            seen.append(message.body.decode())
            if len(seen) == 201:
                finish()
            return True
        nsq.Reader("t", "c", handle, nsqd_tcp_addresses=ADDRESS, max_in_flight=20, **options)
        publish(("pub", "t", b"one"), ("mpub", "t", [b"m%d" % n for n in range(200)]), **options)
    """)
    assert sorted(answer["seen"]) == sorted(["one"] + [f"m{n}" for n in range(200)])
    for layer, option in (("TLS", "tls_v1"), ("deflate", "deflate"), ("snappy", "snappy")):
        wait_until(lambda layer=layer, wanted=2 * (option in transport): upgrades(node, layer) == wanted)


def test_pynsq_fails_until_a_message_is_a_dead_letter_and_succeeds_once_it_is_redriven(daemon):
    node = daemon("--topic-storage=log")
    status, answer = node.http("PUT", "/channel/rules?topic=t&channel=c", b'{"max_attempts": 3, "requeue_delay": "10ms"}')
    assert status == 200, answer
    failed = pynsq(node, """
        def handle(message):
            seen.append([message.body.decode(), message.attempts])
            if message.attempts == 3:
                later(0.5, finish)
            raise ValueError("it always fails")
        reader = nsq.Reader("t", "c", handle, nsqd_tcp_addresses=ADDRESS, requeue_delay=0, max_backoff_duration=0.01,
                            max_tries=100)
        publish(("pub", "t", b"poison"))
    """)
    assert failed["seen"] == [["poison", 1], ["poison", 2], ["poison", 3]]
    wait_until(lambda: node.channel("t", "c").get("dead_letter_count") == 1)
    where = ["--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}"]
    letter = json.loads(call("dead", "show", "t.dead", "--json", *where).out)
    assert letter["body"] == "poison" and letter["origin"]["client"]["client_id"]
    done = call("dead", "redrive", "t.dead", "--origin", "t/c", *where)
    assert done.code == 0 and "1 letter redriven" in done.out
    succeeded = pynsq(node, """
        def handle(message):
            seen.append([message.body.decode(), message.attempts])
            later(0.5, finish)
            return True
        reader = nsq.Reader("t", "c", handle, nsqd_tcp_addresses=ADDRESS)
    """)
    assert succeeded["seen"] == [["poison", 1]]
    stats = node.channel("t", "c")
    assert (stats["depth"], stats["in_flight_count"], stats["dead_letter_count"], stats["redriven_count"]) == (0, 0, 1, 1)
    assert node.http("GET", "/dead")[1] == (b'{"topics":[{"topic":"t.dead","storage":"log","waiting":0,'
                                            b'"channels":["t/c"]}]}')


# ---------------------------------------------------------------------- ansq


def test_ansq_two_channels_and_restart_in_the_middle(node):
    ports = (f"--tcp-address=127.0.0.1:{node.tcp_port}", f"--http-address=127.0.0.1:{node.http_port}")

    async def consume(channel: str, count: int) -> list[str]:
        reader = await ansq.create_reader(
            topic="tt", channel=channel, nsqd_tcp_addresses=[f"127.0.0.1:{node.tcp_port}"])
        bodies = []
        async for message in reader.messages():
            bodies.append(message.body.decode())
            await message.fin()
            if len(bodies) == count:
                break
        await reader.close()
        return bodies

    async def publish(*bodies: str) -> None:
        writer = await ansq.create_writer(nsqd_tcp_addresses=[f"127.0.0.1:{node.tcp_port}"])
        await writer.pub(topic="tt", message=bodies[0])
        await writer.mpub("tt", *bodies[1:])
        await writer.dpub("tt", "late", delay_time=500)
        await writer.close()

    for channel in ("one", "two"):
        node.connect().sub("tt", channel).close()
    asyncio.run(publish("a", "b", "c"))
    wait_until(lambda: node.channel("tt", "one")["depth"] == 3)
    node.restart(*ports)
    for channel in ("one", "two"):
        assert sorted(asyncio.run(asyncio.wait_for(consume(channel, 4), WAIT_SECONDS))) == ["a", "b", "c", "late"]


# ---------------------------------------------------------------------- gnsq

GNSQ = """
import gevent.monkey
gevent.monkey.patch_all()
import json, ssl, sys
import gevent, gnsq

address, options = sys.argv[1], {**json.loads(sys.argv[2]), "auth_secret": b"open sesame"}
if options.get("tls_v1"):
    options["tls_options"] = {"cert_reqs": ssl.CERT_NONE}
seen = []
consumer = gnsq.Consumer("t", "c", nsqd_tcp_addresses=[address], max_in_flight=20, **options)

@consumer.on_message.connect
def handle(consumer, message):
    seen.append(message.body.decode())
    if len(seen) == 202:
        gevent.spawn_later(0.1, consumer.close)

consumer.start(block=False)
# Not gnsq.Producer: it mistakes the OK of an upgrade for that of a publish and fails.
host, port = address.split(":")
producer = gnsq.NsqdTCPClient(host, int(port), **options)
producer.connect()
producer.identify()
for publish in (lambda: producer.publish("t", b"one"), lambda: producer.publish("t", b"later", defer=300),
                lambda: producer.multipublish("t", [b"m%d" % n for n in range(200)])):
    publish()
    assert producer.read_response()[1] == b"OK"
with gevent.Timeout(25):
    consumer.join()
producer.close_stream()
print(json.dumps(seen))
"""


@pytest.mark.parametrize("transport", [
    {}, {"tls_v1": True}, {"deflate": True}, {"snappy": True}, {"tls_v1": True, "deflate": True},
    {"tls_v1": True, "snappy": True},
], ids="+".join)
def test_gnsq_encrypted_compressed_and_authorised(daemon, certs, authd, transport):
    server = authd()
    node = secure(daemon, certs, f"--auth-http-address={server.address}")
    done = subprocess.run([sys.executable, "-c", GNSQ, f"127.0.0.1:{node.tcp_port}",
                           json.dumps(transport)],
                          capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr + node.log[-2000:]
    assert sorted(json.loads(done.stdout.splitlines()[-1])) == sorted(["one", "later"] + [f"m{n}" for n in range(200)])
    assert {query.facts["secret"] for query in server.asked} == {"open sesame"}
    for layer, option in (("TLS", "tls_v1"), ("deflate", "deflate"), ("snappy", "snappy")):
        wait_until(lambda layer=layer, wanted=2 * (option in transport): upgrades(node, layer) == wanted)


def test_gnsq_with_a_secret_that_is_refused(daemon, authd):
    server = authd(reply(authorizations=[]))
    node = daemon(f"--auth-http-address={server.address}")
    script = """
        import sys, gnsq
        client = gnsq.NsqdTCPClient("127.0.0.1", int(sys.argv[1]), auth_secret=b"wrong")
        client.connect()
        try:
            client.identify()
        except gnsq.errors.NSQUnauthorized as error:
            print("refused:", error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(node.tcp_port)], capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    assert done.stdout.startswith("refused:"), done.stdout + done.stderr
