"""Registration with nsqlookupds that work, start late, are slow, silent or broken."""

import json
import socket
import struct

import pytest

from tests.peers.fakes import HOST, Lookupd, TcpServer
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer
from tests.support.places import WORDS, Places
from tests.support.ports import free_port
from tests.support.secure import make_certificates

PATIENCE = ("--http-client-connect-timeout=1s", "--http-client-request-timeout=1s")


def sized(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def registered(*names: str) -> list[str]:
    return [f"REGISTER {name}" for name in names]


def test_introduces_itself_and_tells_what_comes_and_goes(daemon, lookupd):
    lookup = lookupd()
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--broadcast-address=node.example.org")
    lookup.wait_for_introductions(1)
    assert lookup.magics == [b"  V1"]
    assert lookup.identities() == [{"broadcast_address": "node.example.org", "hostname": socket.gethostname(),
                                    "http_port": node.http_port, "tcp_port": node.tcp_port, "version": "1.3.0"}]
    wait_until(lambda: "peer info" in node.log)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/channel/delete?topic=t&channel=c")
    node.post("/topic/delete?topic=t")
    told = ["REGISTER t", "REGISTER t c", "UNREGISTER t c", "UNREGISTER t"]
    wait_until(lambda: lookup.commands() == told)
    assert node.stop() == 0
    wait_until(lambda: lookup.commands() == [*told, "closed"])


def test_unix_sockets_have_no_port_to_tell(daemon, lookupd):
    lookup = lookupd()
    daemon(f"--lookupd-tcp-address={lookup.address}", unix=True)
    lookup.wait_for_introductions(1)
    assert (lookup.identities()[0]["tcp_port"], lookup.identities()[0]["http_port"]) == (0, 0)


def test_a_refusal_says_what_to_do(daemon, tmp_path):
    """A node without an HTTP port, and one that does not know the lookup server's authority."""
    plain = LookupServer(tmp_path / "plain.log")
    without = daemon(f"--lookupd-tcp-address={HOST}:{plain.tcp_port}", unix=True)
    wait_until(lambda: "it lists only nodes with an HTTP port: give --http-address" in without.log)
    certs = make_certificates(tmp_path)
    secure = LookupServer(tmp_path / "secure.log", f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    node = daemon(f"--lookupd-tcp-address=tls://{HOST}:{secure.tcp_port}")
    wait_until(lambda: "give the authority of its certificate by --lookupd-root-ca-file" in node.log)
    assert plain.stop() == secure.stop() == 0


def test_a_lookupd_that_comes_later_learns_everything(daemon, lookupd):
    port = free_port()
    node = daemon(f"--lookupd-tcp-address={HOST}:{port}")
    node.post("/topic/create?topic=bare")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/channel/create?topic=t&channel=d")
    wait_until(lambda: f"LOOKUPD({HOST}:{port}): " in node.log)
    lookupd(port=port).hear(*registered("bare", "t c", "t d"))


def test_after_a_lost_connection_the_next_begins_with_everything(daemon, lookupd):
    lookup = lookupd()
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: "REGISTER t c" in lookup.commands())
    lookup.may_introduce.clear()
    lookup.drop()
    lookup.wait_for_introductions(2)
    # The next connection's registrations report these changes.
    node.post("/channel/delete?topic=t&channel=c")
    node.post("/topic/create?topic=u")
    lookup.may_introduce.set()
    lookup.hear(*registered("t", "u"))
    node.post("/topic/create?topic=v")
    lookup.hear(*registered("t", "u", "v"))


def test_many_names_and_a_lookupd_that_answers_in_small_pieces(daemon, lookupd, tmp_path):
    names = [f"t{number}" for number in range(700)]
    (tmp_path / "seeded").mkdir()
    (tmp_path / "seeded" / "nsqd.dat").write_text(json.dumps(
        {"topics": [{"name": name, "paused": False, "channels": None} for name in names], "version": "1.3.0"}))
    lookup = lookupd()
    lookup.pieces = 3
    daemon(f"--lookupd-tcp-address={lookup.address}", data_path=tmp_path / "seeded")
    lookup.hear(*registered(*names))


def test_errors_are_reported_and_the_rest_is_told(daemon, lookupd):
    lookup = lookupd()
    lookup.replies["REGISTER bad"] = sized(b"E_BAD_TOPIC no such luck")
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    wait_until(lambda: "peer info" in node.log)
    node.post("/topic/create?topic=bad")
    node.post("/topic/create?topic=good")
    lookup.hear(*registered("bad", "good"))
    wait_until(lambda: "REGISTER bad - E_BAD_TOPIC no such luck" in node.log)
    assert len(lookup.identities()) == 1


@pytest.mark.parametrize("introduction", [b"E_INVALID", b"[1]", b'{"http_port": "x"}', b"\xff\xfe", b"", nested.OBJECT])
def test_an_introduction_that_makes_no_sense_ends_the_connection(daemon, lookupd, introduction):
    lookup = lookupd()
    lookup.introduction = introduction
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    node.post("/topic/create?topic=t")
    lookup.wait_for_introductions(2)
    assert not [one for one in lookup.heard if str(one).startswith("REGISTER")]
    lookup.introduction = None
    lookup.hear("REGISTER t")
    assert ".run ended" not in node.log


@pytest.mark.parametrize("reply, reason", [
    (b"\x7f\xff\xff\xff", "reply of 2147483647 bytes is larger than 65536"),
    (b"\xff\xff\xff\xff", "reply of 4294967295 bytes is larger than 65536"),
    (b"\x00\x01\x00\x01", "reply of 65537 bytes is larger than 65536"),
    (sized(b"OK") * 2, "a reply without a command"),
])
def test_a_reply_out_of_bounds_ends_the_connection(daemon, lookupd, reply, reason):
    lookup = lookupd()
    lookup.replies["REGISTER t"] = reply
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    wait_until(lambda: "peer info" in node.log)
    node.post("/topic/create?topic=t")
    wait_until(lambda: "closed" in lookup.heard)
    wait_until(lambda: f"LOOKUPD({lookup.address}): {reason}" in node.log)
    lookup.replies.clear()
    lookup.hear("REGISTER t")


@pytest.mark.parametrize("when", ["accepting", "identifying", "registering"])
def test_a_lookupd_that_hangs_does_no_harm(daemon, lookupd, when):
    if when == "accepting":
        # The kernel completes the connection; no process reads.
        door = socket.create_server((HOST, 0), backlog=1)
        address = f"{HOST}:{door.getsockname()[1]}"
    else:
        lookup = lookupd()
        lookup.mute = when == "identifying"
        address = lookup.address
    node = daemon(f"--lookupd-tcp-address={address}", *PATIENCE)
    if when == "registering":
        wait_until(lambda: "peer info" in node.log)
        lookup.mute = True
    client = node.connect()
    client.pub("t", b"one")
    consumer = node.connect().sub("t", "c", 1)
    assert consumer.message().body == b"one"
    wait_until(lambda: f"LOOKUPD({address}): timed out" in node.log)
    if when != "accepting":
        lookup.mute = False
        lookup.wait_for_introductions(2)
        lookup.hear("REGISTER t c")
    assert node.stop() == 0
    if when == "accepting":
        door.close()


def test_one_that_hangs_does_not_hold_up_the_other(daemon, lookupd):
    silent, lookup = lookupd(), lookupd()
    silent.mute = True
    node = daemon(f"--lookupd-tcp-address={silent.address}", f"--lookupd-tcp-address={lookup.address}",
                  "--http-client-request-timeout=1h")
    wait_until(lambda: "peer info" in node.log)
    node.post("/topic/create?topic=t")
    lookup.hear("REGISTER t")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:x", "127.0.0.1:99999", "no-such-host.invalid:4160", ""])
def test_addresses_that_are_none_do_no_harm(daemon, lookupd, address):
    lookup = lookupd()
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    assert node.http("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps([address, lookup.address]).encode())[0] == 200
    wait_until(lambda: f"ERROR: LOOKUPD({address}): " in node.log)
    node.post("/topic/create?topic=t")
    lookup.hear("REGISTER t")
    assert node.stop() == 0


def test_names_are_resolved(daemon, lookupd):
    lookup = lookupd()
    daemon(f"--lookupd-tcp-address=localhost:{lookup.port}")
    lookup.wait_for_introductions(1)


def test_addresses_changed_at_run_time(daemon, lookupd):
    first, second = lookupd(), lookupd()
    node = daemon(f"--lookupd-tcp-address={first.address}")
    wait_until(lambda: "peer info" in node.log)
    node.post("/topic/create?topic=t")
    first.hear("REGISTER t")

    def put(*addresses: str) -> None:
        status, _ = node.http("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(addresses).encode())
        assert status == 200

    put(first.address, second.address, second.address)
    second.hear("REGISTER t")
    assert len(first.identities()) == len(second.identities()) == 1
    put(second.address)
    first.hear("REGISTER t", "closed")
    node.post("/topic/create?topic=u")
    second.hear(*registered("t", "u"))
    put()
    second.hear(*registered("t", "u"), "closed")
    node.post("/topic/create?topic=v")
    put(first.address)
    first.hear(*registered("t", "u", "v"))
    # An unrelated change leaves the connections alone.
    assert node.http("PUT", "/config/log_level", b"debug")[0] == 200
    node.post("/topic/create?topic=w")
    first.hear(*registered("t", "u", "v", "w"))
    assert len(first.identities()) == 2


def test_a_restarted_lookupd_is_found_again(daemon):
    lookup = Lookupd()
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    lookup.wait_for_introductions(1)
    lookup.close()
    node.post("/topic/create?topic=t")
    again = Lookupd(port=lookup.port)
    again.hear("REGISTER t")
    again.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Services that may listen where an nsqlookupd is expected."""
    found = Places(tmp_path_factory.mktemp("places"))
    yield found
    found.close()


@pytest.mark.parametrize("where", [where for where in WORDS if where != "lookupd tcp"])
def test_the_port_of_something_else_is_named(daemon, places, where):
    address = places.addresses[where]
    node = daemon(f"--lookupd-tcp-address={address}")
    text = f"LOOKUPD({address}): this is {WORDS[where]}, not nsqlookupd's TCP port (4160 by default)"
    wait_until(lambda: text in node.log, text, 60)
    node.connect().pub("t", b"x")
    assert "reply of" not in node.log and "answered" not in node.log


def test_its_own_port_is_named(daemon, tmp_path):
    """A node that is its own nsqlookupd, by mistake."""
    port = free_port()
    node = daemon(f"--tcp-address=127.0.0.1:{port}", f"--lookupd-tcp-address=127.0.0.1:{port}")
    wait_until(lambda: "this is nsqd's TCP port, not nsqlookupd's TCP port (4160 by default)" in node.log, seconds=60)


class Closing(TcpServer):
    """Ends every connection without an answer. begun: the first bytes of each client."""

    def __init__(self):
        self.begun: list[bytes] = []
        super().__init__()

    def serve(self, guest):
        self.begun.append(guest.recv(65536)[:4])


def test_what_is_there_is_asked_once(daemon):
    """Over plain HTTP and over TLS: an nsqlookupd that is full, say, is not probed repeatedly."""
    server = Closing()
    node = daemon(f"--lookupd-tcp-address={server.address}")
    wait_until(lambda: server.begun.count(b"  V1") >= 5, "five tries", 60)
    assert [begun for begun in server.begun if begun != b"  V1"] == [b"GET ", b"\x16\x03\x01\x02"]
    assert "this is" not in node.log and "connection closed" in node.log
    server.close()
