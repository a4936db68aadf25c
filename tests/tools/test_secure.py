"""Tools over TLS, with a codec and with AUTH."""

import pytest

from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
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
