"""The jobs' checks before Spark starts: the server at an address, with TLS and AUTH, and its topics."""

import socketserver
import threading

import pytest

from nsqc.spark.jobs import handshake, nodes, nsqd_http
from nsqc.spark.jobs.running import JobError
from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.spark.conftest import address
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.ports import kept
from tests.support.secure import make_certificates

authd = factory(AuthServer)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


def complaint(**given: str) -> str:
    """In one line."""
    with pytest.raises(JobError) as caught:
        handshake.check_nsqd(given, note=lambda text: None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tls_and_auth_are_tried_as_they_will_be_used(daemon, authd, certs):
    flags = (f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--tls-required=tcp-https")
    where = address(daemon(*flags))
    assert complaint(nsqd=where).startswith(f"{where}: nsqd requires TLS: give --tls, and --tls-ca-file")
    one = daemon(*flags, f"--auth-http-address={authd().address}")
    where = address(one)
    assert "give the authority by --tls-ca-file" in complaint(nsqd=where, tls="true")
    trusted = {"nsqd": where, "tls": "true", "tlsCaFile": f"{certs}/server.pem"}
    assert complaint(**trusted).endswith("give the secret by --auth-secret or NSQC_AUTH_SECRET")
    handshake.check_nsqd(trusted | {"authSecret": "s"})
    assert one.stats()["topics"] == []


def test_an_nsqd_that_is_well_logs_no_error(daemon):
    one = daemon()
    handshake.check_nsqd({"nsqd": address(one)})
    handshake.check_nsqd({"nsqd": address(one), "compression": "snappy"})
    wait_until(lambda: one.stats()["producers"] in (None, []), "no connection is left")
    assert not [line for line in one.log.splitlines() if "ERROR" in line or "WARNING" in line]


def test_an_nsqd_without_tls(nsqd):
    assert complaint(nsqd=address(nsqd), tls="true").endswith("nsqd does not offer tls: omit --tls")


def test_http_ports_are_known_by_what_they_answer(nsqd, lookupd):
    http, lookup = f"127.0.0.1:{nsqd.http_port}", lookupd(nsqd)
    assert complaint(nsqd=http) == f"{http} is the HTTP port of an nsqd: give its TCP port, --nsqd {address(nsqd)}"
    assert complaint(nsqd=lookup) == f"{lookup} is the HTTP port of an nsqlookupd: give it as --nsqlookupd {lookup}"
    assert complaint(nsqlookupd=http).startswith(f"{http} is the HTTP port of an nsqd: give nsqlookupd's, or --nsqd ")
    assert complaint(nsqlookupd=address(nsqd)) == (
        f"{address(nsqd)} is the TCP port of an nsqd: give it as --nsqd {address(nsqd)}")


class Echo(socketserver.BaseRequestHandler):
    """Echoes its input, like a connection that has reached itself."""

    def handle(self):
        self.request.sendall(self.request.recv(1 << 16))


def test_the_next_port_may_be_of_something_else():
    with socketserver.TCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with pytest.raises(nsqd_http.NodeError, match=r"GET /info"):
            nsqd_http.get(f"127.0.0.1:{port}", "/info")
        with pytest.raises(nsqd_http.NodeError, match="is not the HTTP address of"):
            nsqd_http.http_addresses({"nsqd": f"127.0.0.1:{port - 1}"})
        server.shutdown()


def test_nested_json_is_nonsense_like_any_other():
    class Nested(Echo):
        def handle(self):
            self.request.recv(1 << 16)
            self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + nested.OBJECT)

    with socketserver.TCPServer(("127.0.0.1", 0), Nested) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(nsqd_http.NodeError, match="nested too deeply"):
            nsqd_http.get(where, "/info")
        assert complaint(nsqd=where).startswith(f"{where} is an HTTP server, but not an nsqd")
        server.shutdown()


def test_what_is_wrong_is_told_though_another_nsqd_is_well(nsqd):
    assert "is the HTTP port" in complaint(nsqd=f"{address(nsqd)},127.0.0.1:{nsqd.http_port}")


def test_one_of_several_may_be_down(nsqd, daemon, lookupd):
    dead = daemon(kept())
    dead.kill()
    notes = []
    for given in ({"nsqd": address(dead, nsqd)}, {"nsqlookupd": lookupd(dead, nsqd)},
                  {"nsqlookupd": f"127.0.0.1:1,{lookupd(nsqd)}"}):
        handshake.check_nsqd(given, notes.append)
    assert [note.split(": ")[0] for note in notes] == [address(dead), address(dead), "127.0.0.1:1"]
    assert all("Connection refused" in note and note.endswith("; continuing with the others") for note in notes)


def test_an_nsqd_that_only_nsqlookupd_can_reach(daemon, lookupd):
    dead = daemon(kept())
    dead.kill()
    assert complaint(nsqlookupd=lookupd(dead)).endswith(
        "from nsqlookupd (an nsqd's --broadcast-address)")
    assert "knows no nsqd: start one with --lookupd-tcp-address" in complaint(nsqlookupd=lookupd())


def test_names_that_are_like_the_missing_one_come_first():
    there = {f"topic-{number}" for number in range(20)} | {"orders"}
    told = nodes.choice("topics", "order", there)
    assert told.startswith("there are orders, topic-0, ") and told.endswith(" and 13 more")
    assert nodes.choice("topics", "x", set()) == "there are no topics"
