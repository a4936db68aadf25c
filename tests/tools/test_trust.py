"""The nodes that tools and clients give a secret to."""

import pytest

from nsqc.client import Connection
from nsqc.client.errors import AuthError, LookupFailed
from nsqc.client.lookup import lookup
from nsqc.tools.cluster import names_in
from tests.support.lookupd import LookupServer
from tests.support.secure import make_certificates
from tests.support.stranger import SECRET, Stranger
from tests.tools.calling import call


@pytest.fixture
def stranger(tmp_path):
    """A program that has announced itself to a lookup server, and the server's flag."""
    lookupd = LookupServer(tmp_path / "lookupd.log")
    stranger = Stranger()
    stranger.announce(lookupd)
    yield stranger, f"--nsqlookupd={lookupd.http_address}"
    stranger.close()
    lookupd.close()


@pytest.mark.parametrize("words", [("nodes",), ("topic", "list"), ("topic", "empty", "t", "--yes"), ("stat", "t", "c")])
def test_a_node_that_a_lookup_server_names_gets_no_secret(stranger, words):
    node, lookupd = stranger
    call(*words, lookupd, f"--auth-secret={SECRET}")
    assert not node.secrets
    call(*words, lookupd, f"--auth-secret={SECRET}", "--node-addresses=10.0.0.0/8,*.example")
    assert not node.secrets


def test_the_error_names_the_remedy(stranger):
    node, lookupd = stranger
    done = call("nodes", lookupd, f"--auth-secret={SECRET}")
    assert "permit it by --node-addresses=127.0.0.1" in done.out + done.err
    call("nodes", lookupd, f"--auth-secret={SECRET}", "--node-addresses=127.0.0.1")
    assert node.secrets


@pytest.mark.parametrize("login", [False, True])
def test_a_node_that_requires_tls_gets_no_secret_in_clear_text(login):
    node = Stranger((403, {"message": "TLS_REQUIRED", "https_port": 4152}))
    at = f"http://user:{SECRET}@{node.address}" if login else node.address
    words = [] if login else [f"--auth-secret={SECRET}"]
    done = call("stat", "t", "c", "--nsqd=127.0.0.1:1", f"--http={at}", *words)
    assert "the secret is not sent in clear text: --tls uses it" in done.err
    assert {authorization for _, authorization in node.requests} == {""}
    node.close()


def test_clients_send_auth_to_permitted_nodes(daemon, tmp_path):
    folder = make_certificates(tmp_path)
    access = tmp_path / "access.toml"
    access.write_text("")
    node = daemon(f"--access-file={access}")
    address = f"127.0.0.1:{node.tcp_port}"
    with pytest.raises(AuthError, match="not in node_addresses"):
        Connection(address, auth_secret=SECRET, node_addresses="10.0.0.0/8")
    with pytest.raises(AuthError, match=r"E_AUTH_FAILED|E_UNAUTHORIZED"):
        Connection(address, auth_secret=SECRET, node_addresses="10.0.0.0/8,127.0.0.1")
    node = daemon(f"--access-file={access}", "--tls-required=true", f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")
    with pytest.raises(AuthError, match="requires TLS: give tls, as auth_secret is not sent in clear text"):
        Connection(f"127.0.0.1:{node.tcp_port}", auth_secret=SECRET)


@pytest.mark.parametrize("following", [0, -1, "x", 7.5])
@pytest.mark.parametrize("words", [("redrive", "t"), ("drop", "t", "--yes"), ("list", "t"), ("show", "t")])
def test_letters_whose_places_do_not_advance(words, following):
    node = Stranger((200, {"topics": [{"topic": "t", "storage": "log", "topic_name": "t", "channels": []}], "groups": [], "skipped": [], "messages": [],
                           "next": following, "version": "1.3.0", "tcp_port": 1, "health": "OK"}))
    done = call("dead", *words, "--nsqd=127.0.0.1:1", f"--http={node.address}")
    assert done.code and "does not answer as nsqc does" in done.err
    node.close()


def test_an_announced_path_is_no_node():
    """Anyone may announce a node; a path would be a unix socket of this machine."""
    lookupd = Stranger((200, {"producers": [{"broadcast_address": "/tmp/x", "tcp_port": 1}]}))
    with pytest.raises(LookupFailed, match="/tmp/x:1"):
        lookup("t", [lookupd.address])
    lookupd.close()


def test_names_of_a_lookup_server_that_are_none():
    assert names_in({"topics": ["a", "../b", "c/d", "", "e\n", 5, "f#ephemeral"]}, "topics") == ["a", "f#ephemeral"]
