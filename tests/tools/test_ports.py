"""Addresses of something else: tools report the server there, and the port to use."""

import subprocess

import pytest

from nsqc.client.errors import ConnectError
from nsqc.wire.outside import Answer, Service, of_info, probed, recognized, wrong_port
from tests.support.places import WORDS, Places
from tests.support.tcpserver import Answering
from tests.tools.conftest import ENV, SECONDS, Tool

EVERYTHING = tuple(WORDS)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    found = Places(tmp_path_factory.mktemp("places"))
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
        found.node.post(path)
    yield found
    found.close()


def expected(places, where, wanted):
    """The end of the error."""
    if (where, wanted) == ("nsqd http", "nsqd's TCP port"):
        return f"{places.addresses[where]}: this is nsqd's HTTP port; its TCP port is {places.node.tcp_port}"
    port = {"nsqd's TCP port": 4150, "nsqd's HTTP port": 4151, "nsqlookupd's HTTP port": 4161}[wanted]
    return f"{places.addresses[where]}: this is {WORDS[where]}, not {wanted} ({port} by default)"


def failed(done, text):
    assert (done.returncode, done.stdout) == (3, ""), done
    assert text in done.stderr and len(done.stderr.splitlines()[0]) < 250
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------- nsqd's TCP port expected

@pytest.mark.parametrize("where", [where for where in EVERYTHING if where != "nsqd tcp"])
@pytest.mark.parametrize("words", [
    "tail t -n 1", "tail t -n 1 --wait", "pub t --retries 0 /etc/hostname", "bench publish --seconds 100ms", "topic list",
    "channel list t", "topic create new", "stat t c -n 1", "peek t c", "drain --no-wait", "topic read t", "tail t --from end",
    "relay t --to 127.0.0.1:1"])
def test_nsqd(places, inside, where, words):
    done = inside(*words.split(), "--nsqd", places.addresses[where])
    failed(done, expected(places, where, "nsqd's TCP port"))


def test_nsqd_whose_http_address_is_not_the_next_port(places, inside):
    """As in `nsqc topic list --nsqd` with the right port, and HTTP elsewhere."""
    node = places.addresses["nsqd tcp"]
    host, port = node.split(":")
    failed(inside("topic", "list", "--nsqd", node),
           f"{host}:{int(port) + 1}: Connection refused; {node} is nsqd's TCP port: give its HTTP address by --http\n")


@pytest.mark.parametrize("where", [where for where in EVERYTHING if where != "nsqd tcp"])
def test_targets_of_a_relay(places, tools, where):
    topic = tools.topic("nsq_to_nsq")
    tools.publish(topic, b"x")
    running = tools.start("relay", topic, "--to", places.addresses[where]).says(expected(places, where, "nsqd's TCP port"))
    assert running.stop(15) == 0


@pytest.mark.parametrize("where", [where for where in EVERYTHING if where != "nsqd tcp"])
@pytest.mark.parametrize("name", ["nsq_tail", "to_nsq"])
def test_originals(places, links, tools, where, name):
    done = subprocess.run([links(name), "--topic=t", f"--nsqd-tcp-address={places.addresses[where]}"], input=b"x\n",
                          capture_output=True, timeout=SECONDS, env=ENV)
    assert (done.returncode, done.stdout) == (1, b"")
    assert expected(places, where, "nsqd's TCP port") in done.stderr.decode()


# ---------------------------------------------------------------------- nsqd's HTTP port expected

@pytest.mark.parametrize("where", [where for where in EVERYTHING if where != "nsqd http"])
@pytest.mark.parametrize("words", ["topic list", "topic create new", "topic rules t", "channel list t", "stat t c -n 1",
                                   "peek t c", "drain --no-wait", "topic read t", "bench publish --seconds 100ms"])
def test_http(places, inside, where, words):
    """nsqlookupd has some of nsqd's calls, too: nothing is created there."""
    done = inside(*words.split(), "--nsqd", places.addresses["nsqd tcp"], "--http", places.addresses[where])
    failed(done, expected(places, where, "nsqd's HTTP port"))
    assert ("--tls is for TLS" in done.stderr) is ("TLS" in WORDS[where])
    assert places.lookupd.get("/topics") == {"topics": []}


@pytest.mark.parametrize("where", [where for where in EVERYTHING if "TLS" not in WORDS[where]])
def test_https(places, inside, where):
    done = inside("topic", "list", "--tls", "--nsqd", places.addresses["nsqd tcp"], "--http", places.addresses[where])
    failed(done, f"{places.addresses[where]}: this is {WORDS[where]}, which does not speak TLS")
    assert ("(4152 by default)" in done.stderr) is where.startswith("nsqd")


def test_nodes_name_what_is_there(places, inside):
    done = inside("nodes", *(word for where in EVERYTHING for word in ("--nsqd", places.addresses[where])),
                  *(word for where in EVERYTHING for word in ("--http", places.addresses[where])))
    assert (done.returncode, done.stderr) == (1, "")
    for where, line in zip(EVERYTHING, done.stdout.splitlines()[1:], strict=True):
        assert line.startswith(places.addresses[where])
        assert ("OK" if where == "nsqd http" else f"this is {WORDS[where]}, not nsqd's HTTP port") in line


# ---------------------------------------------------------------------- nsqlookupd's HTTP port expected

@pytest.mark.parametrize("where", [where for where in EVERYTHING if where != "lookupd http"])
@pytest.mark.parametrize("words", ["tail t -n 1", "tail t -n 1 --wait", "topic list", "channel list t", "stat t c -n 1", "nodes",
                                   "pub t /etc/hostname", "tail t --from end"])
def test_nsqlookupd(places, inside, where, words):
    done = inside(*words.split(), "--nsqlookupd", places.addresses[where])
    assert (done.returncode, done.stdout) == (3, "")
    text = f"this is {WORDS[where]}, not nsqlookupd's HTTP port (4161 by default)"
    # With --wait the client library asks, which does not continue to probe for TLS.
    assert text in done.stderr or ("--wait" in words and "TLS" in WORDS[where] and "nsqlookupd" in done.stderr)


@pytest.mark.parametrize("where", ["nsqd tcp", "nsqd http", "lookupd tcp", "web"])
def test_originals_with_nsqlookupd(places, links, tools, where):
    tools.running.append(Tool([links("nsq_tail"), "--topic=t", f"--lookupd-http-address={places.addresses[where]}"], tools.folder))
    tools.running[-1].says(f"this is {WORDS[where]}, not nsqlookupd's HTTP port (4161 by default); retrying later")


# ---------------------------------------------------------------------- servers recognised by bytes

@pytest.mark.parametrize("data, service", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n400 Bad Request", Service.HTTP), (b"HTTP/1.0 ", Service.HTTP),
    (b"HTTP/1.1 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", Service.TLS),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n<center>The plain HTTP request was sent to HTTPS port</center>", Service.TLS),
    (b'HTTP/1.1 200 OK\r\n\r\n{"version":"1.3.0","tcp_port":4150}', Service.NSQD_HTTP),
    (b'HTTP/1.1 200 OK\r\n\r\n{"version":"1.3.0"}', Service.LOOKUPD_HTTP),
    (b'HTTP/1.1 200 OK\r\n\r\n{"status_code":200,"data":{"version":"0.3.8"}}', Service.LOOKUPD_HTTP),
    (b"HTTP/1.1 200 OK\r\n\r\n<html>", Service.FOREIGN_HTTP), (b"HTTP/1.1 200 OK\r\n\r\n" + b'{"a":' * 100_000, Service.FOREIGN_HTTP),
    (b'HTTP/1.1 403 Forbidden\r\n\r\n{"message":"TLS_REQUIRED"}', Service.NSQD_HTTP),
    (b"\x15\x03\x01\0\2\2\x46", Service.TLS), (b"\0\0\0\x12\0\0\0\1E_BAD_PROTOCOL", Service.NSQD_TCP),
    (b"\0\0\0\x0eE_BAD_PROTOCOL", Service.LOOKUPD_TCP), (b"", None), (b"SSH-2.0-OpenSSH", None), (b"\0\0\0\6\0\0\0\0OK", None)])
def test_answers(data, service):
    found = recognized(data)
    assert (found and found.service) is service
    if service is Service.HTTP:
        assert probed(data) == Answer(Service.FOREIGN_HTTP)
    for wanted in (Service.NSQD_TCP, Service.NSQD_HTTP, Service.LOOKUPD_TCP, Service.LOOKUPD_HTTP):
        if found is not None and service is not wanted:
            assert "by default)" in wrong_port(found, wanted) or "its TCP port is 4150" in wrong_port(found, wanted)


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b'{"version":1}', b'{"data":[]}', b"[" * 100_000, b"\xff"])
def test_info_of_something_else(body):
    assert of_info(body) == Answer(Service.FOREIGN_HTTP)


def test_a_server_that_says_nothing_is_not_waited_for(inside):
    """A probe's failure does not replace the error."""
    with Answering(b"") as server:
        done = inside("tail", "t", "--wait", "--nsqd", server.address)
        assert done.returncode == 3 and server.address in done.stderr and ("closed by nsqd" in done.stderr or "reset" in done.stderr)
    assert issubclass(ConnectError, OSError)
