"""Tools over TLS, with a codec and with AUTH."""

import re

import pytest

from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.support.daemon import Daemon, wait_until
from tests.support.secure import self_signed

authd = factory(AuthServer)


@pytest.fixture
def cert(tmp_path):
    self_signed(tmp_path, "server", "localhost")
    return tmp_path / "server.pem"


def test_tls_and_compression(daemon, tools, cert):
    node = daemon(f"--tls-cert={cert}", f"--tls-key={cert.with_suffix('.key')}", "--tls-required=tcp-https")
    nodes = ("--nsqd", f"127.0.0.1:{node.tcp_port}")
    words = ("pub", "--topic", "t", "--retries", "0", *nodes)
    done = tools.run(*words, input="x\n", nodes=False)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 2
    done = tools.run(*words, "--tls", input="x\n", nodes=False)
    assert done.returncode == 3 and "certificate verify failed" in done.stderr.decode()
    assert tools.run(*words, "--tls", "--tls-ca", str(cert), "--deflate", "6", input="x\n" * 1000, nodes=False).returncode == 0
    done = tools.run("tail", "--topic", "t", "--channel", "c", "-n", "1000", "--wait", "--tls", "--tls-insecure", "--snappy", *nodes,
                     nodes=False)
    assert (done.returncode, done.stdout) == (0, b"x\n" * 1000)


def test_auth(daemon, tools, authd, tmp_path):
    server = authd()
    node = daemon(f"--auth-http-address={server.address}")
    words = ("pub", "--topic", "t", "--nsqd", f"127.0.0.1:{node.tcp_port}")
    done = tools.run(*words, input="x\n", nodes=False)
    assert done.returncode == 1 and "E_AUTH_REQUIRED" in done.stderr.decode() and len(done.stderr.splitlines()) == 2
    (tmp_path / "secret").write_text("s3cret\n")
    assert tools.run(*words, "--auth-secret", f"@{tmp_path}/secret", input="x\n", nodes=False).returncode == 0
    assert [asked.facts["secret"] for asked in server.asked] == ["s3cret"]


def test_relay_from_one_kind_of_security_to_another(daemon, tools, authd, cert, tmp_path):
    """Each side has its own; without options for the targets they have the source's."""
    asked = authd()
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", encoding="utf-8-sig")     # as some editors write it
    target = daemon(f"--tls-cert={cert}", f"--tls-key={cert.with_suffix('.key')}", "--tls-required=true", f"--auth-http-address={asked.address}")
    topic = tools.topic("nsq_to_nsq")
    tools.publish(topic, b"there")
    to = ("--to", f"localhost:{target.tcp_port}", "--to-tls", "--to-tls-ca", str(cert), "--to-auth-secret", f"@{secret}", "--to-deflate", "3")
    running = tools.start("relay", "--topic", topic, *to)
    tools.drained(topic, "nsq_to_nsq")
    assert running.stop(15) == 0 and running.err == ""
    own = ("--nsqd", f"localhost:{target.tcp_port}", "--tls", "--tls-ca", str(cert), "--auth-secret", "s3cret")
    back = tools.topic("c")
    running = tools.start("relay", "--topic", topic, "--wait", *own, "--to", tools.tcp, "--to-topic", back, "--to-plain", nodes=False)
    wait_until(lambda: tools.node.channel(back, "c")["depth"] == 1)
    assert running.stop(15) == 0 and running.err == ""


@pytest.mark.parametrize("words, text", [
    (("--to-tls-ca", "x"), "--to-tls-ca needs --to-tls"), (("--to-plain", "--to-tls"), "--to-plain excludes"),
    (("--to-deflate", "1", "--to-snappy"), "--to-deflate and --to-snappy exclude each other"),
    (("--to-auth-secret", "@/nowhere"), "--to-auth-secret: /nowhere: No such file or directory"), (("--to-tls", "--to-tls-ca", "/nowhere"), "--to-tls: ")])
def test_options_of_the_targets_that_do_not_fit(inside, tools, words, text):
    done = inside("relay", "--topic", "x", "--to", "127.0.0.1:1", *words, *tools.nodes)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """The TCP and HTTPS address of a daemon with an untrusted certificate."""
    folder = tmp_path_factory.mktemp("secured")
    self_signed(folder, "server", "localhost")
    node = Daemon(folder / "data", f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")
    port = re.search(r"HTTPS: listening on \S+:(\d+)", node.log_path.read_text())
    yield f"localhost:{node.tcp_port}", f"localhost:{port[1]}"
    node.close()


@pytest.mark.parametrize("tool", ["tail --topic t", "to-file --topic t", "relay --topic t --to 127.0.0.1:1", "pub --topic t --retries 0 /etc/passwd",
                                  "to-http --topic t --post http://127.0.0.1:1/", "bench --seconds 100ms", "stat --topic t --channel c",
                                  "peek t", "topic list"])
def test_a_certificate_that_is_not_trusted(secured, inside, tool):
    done = inside(*tool.split(), "--nsqd", secured[0], "--http", secured[1], "--tls")
    assert done.returncode == 3 and "certificate verify failed" in done.stderr and "Traceback" not in done.stderr
