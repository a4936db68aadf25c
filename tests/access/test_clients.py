"""Real clients: pynsq, the Python client, tools, Spark's readers of logs."""

import asyncio
import json
import subprocess
import sys
import textwrap

import pytest

from nsqc.client import Consumer, Producer, aio
from nsqc.client.errors import AuthError
from nsqc.spark import options
from nsqc.spark.log.api import LogApi, LogError
from tests.support import network
from tests.support.patience import WAIT_SECONDS


@pytest.fixture
def node(start, access):
    access.user("a", publish=["t"], consume=["t/c"])
    access.user("reader", read=["kept"], stats=["*"])
    return start(access.write().flag)


@pytest.mark.parametrize("kind", [Consumer, aio.Consumer])
def test_consumers_raise_what_access_refuses(node, access, kind):
    """A secret that is wrong or missing, a topic that is not permitted: waiting would not help."""
    async def consuming(topic, **given):
        consumer = kind(topic, "c", f"127.0.0.1:{node.tcp_port}", **given)
        try:
            found = consumer.get(WAIT_SECONDS)
            return found if kind is Consumer else await found
        finally:
            closed = consumer.close()
            if closed is not None:
                await closed
    for topic, given, text in (("t", {"auth_secret": "wrong"}, "E_AUTH_FAILED"), ("t", {}, "E_AUTH_REQUIRED"),
                                 ("u", {"auth_secret": access.tokens["a"]}, "E_UNAUTHORIZED")):
        with pytest.raises(AuthError, match=text):
            asyncio.run(consuming(topic, **given))


PYNSQ = textwrap.dedent("""
    import json, sys
    import nsq, tornado.ioloop
    address, secret, seconds = sys.argv[1:]
    bodies = [b"1", b"2", b"3"]
    got = []
    loop = tornado.ioloop.IOLoop.current()
    def handle(message):
        got.append(message.body.decode())
        if len(got) == len(bodies):
            loop.call_later(0, loop.stop)
        return True
    reader = nsq.Reader(topic="t", channel="c", nsqd_tcp_addresses=[address], auth_secret=secret, message_handler=handle)
    writer = nsq.Writer([address], auth_secret=secret)
    left = list(bodies)
    def publish(conn=None, data=b"OK"):
        if isinstance(data, Exception):     # not connected yet
            loop.call_later(0.1, publish)
        elif left:
            writer.pub("t", left[0], callback=published)
    def published(conn, data):
        if not isinstance(data, Exception):
            left.pop(0)
        publish(conn, data)
    publish()
    loop.call_later(float(seconds), loop.stop)
    loop.start()
    print(json.dumps(sorted(got)))
""")


def test_pynsq(node, access):
    done = subprocess.run([sys.executable, "-c", PYNSQ, f"127.0.0.1:{node.tcp_port}", access.tokens["a"], str(WAIT_SECONDS)],
                          capture_output=True, text=True, timeout=2 * WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["1", "2", "3"]


def test_the_python_client(node, access):
    with Producer(f"127.0.0.1:{node.tcp_port}", auth_secret=access.tokens["a"]) as producer:
        producer.publish("t", b"x")
    with pytest.raises(AuthError), Producer(f"127.0.0.1:{node.tcp_port}") as producer:
        producer.publish("t", b"x")


def tool(*words):
    done = subprocess.run([sys.executable, "-m", "nsqc", *words], capture_output=True, text=True, timeout=2 * WAIT_SECONDS)
    return done.returncode, done.stdout, done.stderr


def test_tools(node, access):
    tcp, http, token = f"--nsqd=127.0.0.1:{node.tcp_port}", f"127.0.0.1:{node.http_port}", access.tokens["reader"]
    for words in ([f"--http=http://reader:{token}@{http}"], [f"--http={http}", f"--auth-secret={token}"]):
        code, told, errors = tool("topic", "rules", tcp, *words, "kept")
        assert (code, errors) == (0, ""), errors
    code, told, errors = tool("topic", "rules", tcp, f"--http={http}", "kept")
    assert code != 0
    assert "UNAUTHORIZED" in errors
    assert node.call("POST", "/topic/create?topic=kept", headers=access.bearer("root")).status == 200
    code, told, errors = tool("topic", "pause", tcp, f"--http={http}", f"--auth-secret={token}", "kept")
    assert code != 0
    assert "FORBIDDEN - user reader has no grant admin" in errors
    assert token not in told + errors


# ---------------------------------------------------------------------- logs


def api(node, host="127.0.0.1", **more):
    given = {"nsqd": f"{host}:1", "topic": "kept", **more}
    return LogApi(f"{host}:{node.http_port}", options.parse(options.LogTable, given, "nsq"))


def test_spark_reads_logs_with_a_token(node, access):
    root = access.bearer("root")
    assert node.call("PUT", "/topic/rules?topic=kept", b'{"storage":"log","retain_time":"1h"}', root).status == 200
    assert node.call("POST", "/pub?topic=kept", b"x", root).status == 200
    assert api(node, authSecret=access.tokens["reader"]).state("kept").next == 1
    with pytest.raises(LogError, match=r"UNAUTHORIZED .* authSecret"):
        api(node).state("kept")


def test_spark_names_the_option_that_closes_logs(start):
    host = network.outside()
    node = start("--http-address=0.0.0.0:0")
    node.call("PUT", "/topic/rules?topic=kept", b'{"storage":"log","retain_time":"1h"}')
    node.post("/pub?topic=kept", b"x")
    with pytest.raises(LogError, match="--http-extended-api=all"):
        api(node, host).state("kept")
    code, _, errors = tool("peek", f"--nsqd={host}:1", f"--http={host}:{node.http_port}", "kept")
    assert code != 0
    assert "--http-extended-api=all" in errors
