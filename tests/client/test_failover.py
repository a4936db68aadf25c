"""The policies shared by producers, consumers, and Spark's sink and stager: back-off, choice of the next nsqd, giving
up."""

import pytest

from nsqc.client import ConnectError, LookupFailed, PublishFailed, Refused
from nsqc.client.peers import Backoff, Failover, Peers, Tries

DOWN = ConnectError("127.0.0.1:1: Connection refused")


def test_pauses_double_up_to_the_longest():
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause(failures) for failures in range(6)] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert Backoff(0.0).pause(1000) == 0.0 and Backoff(0.1).pause(10**6) == 30.0


def failover(retries: int = 10, **more) -> Failover:
    return Failover(["a:1", "b:2"], (), retries, Backoff(0.1), **more)


def test_a_producer_pauses_after_each_round_only():
    policy = failover()
    tries = Tries(policy)
    assert [(tries.failed(DOWN, policy.target()), policy.target()) for _ in range(4)] == [
        (0.0, "b:2"), (0.1, "a:1"), (0.1, "b:2"), (0.2, "a:1")]


def test_a_sink_pauses_before_each_retry_and_starts_anywhere():
    policy = failover(first=3, each_try=True)
    tries = Tries(policy)
    assert policy.target() == "b:2"
    assert [(tries.failed(DOWN, policy.target()), policy.target()) for _ in range(3)] == [
        (0.1, "a:1"), (0.2, "b:2"), (0.4, "a:1")]
    tries.succeeded()
    assert tries.failed(DOWN, None) == 0.1 and policy.target() == "a:1"     # a lookup failed, not an nsqd


def test_one_of_two_publishers_moves_on():
    policy = failover()
    policy.move_on("a:1")
    policy.move_on("a:1")       # the second connection that saw a:1 fail
    assert policy.target() == "b:2"


def test_giving_up():
    tries = Tries(failover(retries=1))
    tries.failed(LookupFailed("nsqlookupd l:1: timed out"), None)
    with pytest.raises(PublishFailed, match=r"^given up after 2 tries: 127.0.0.1:1: Connection refused$"):
        tries.failed(DOWN, "a:1")


def test_only_an_nsqd_that_cannot_store_is_left_for_another():
    tries = Tries(failover())
    tries.failed(Refused("a:1", "E_MPUB_FAILED no space"), "a:1")
    with pytest.raises(Refused, match="E_BAD_TOPIC"):
        tries.failed(Refused("b:2", "E_BAD_TOPIC no"), "b:2")


def test_peers_are_due_after_pauses_and_all_tried_once_each_has_failed():
    peers = Peers("t", "c", ["a:1", "b:2"], (), 1, 1, 60.0, Backoff(1.0, 3.0))
    assert [peer.address for peer in peers.due(0.0)] == ["a:1", "b:2"] and not peers.all_tried
    first, second = peers.all
    for now, pause in ((0.0, 1.0), (1.0, 2.0), (3.0, 3.0), (6.0, 3.0)):
        peers.failed(first, DOWN, now)
        assert first.next_try == now + pause
    assert not peers.all_tried and first.error == str(DOWN) and peers.next_try == 0.0
    peers.failed(second, DOWN, 20.0)
    assert peers.all_tried and peers.next_try == 9.0
    assert not peers.due(8.9) and peers.due(9.0) == [first]


def test_lookups_are_due_again_after_the_interval_and_keep_connected_peers():
    peers = Peers("t", "c", (), "l:4161", 1, 2, 60.0, Backoff(1.0))
    assert peers.look_up_due(0.0) and not peers.looked_up and not peers.all_tried
    peers.found(["a:1", "b:2"])
    peers.asked(5.0)
    assert [peer.address for peer in peers.all] == ["a:1", "a:1", "b:2", "b:2"] and peers.next_lookup == 65.0
    assert not peers.look_up_due(64.9) and peers.look_up_due(65.0)
    peers.all[0].connected(Connected())
    peers.found(["c:3"])
    assert [peer.address for peer in peers.all] == ["a:1", "c:3", "c:3"]


class Connected:
    max_ready = 2500
    in_flight = 0


def connected_peers(count: int, max_in_flight: int | None) -> Peers:
    peers = Peers("t", "c", [f"h{n}:1" for n in range(count)], (), max_in_flight, 1, 60.0, Backoff(1.0))
    for peer in peers.all:
        peer.connected(Connected())
    return peers


def share(peers: Peers, now: float) -> list[int]:
    """Returns RDY of all peers; treats the changes as sent."""
    for peer, _, ready in peers.shares(now):
        peer.ready = ready
    return [peer.ready for peer in peers.all]


def test_each_connection_has_rdy_by_default():
    peers = connected_peers(5, None)
    assert share(peers, 100.0) == [1] * 5 and peers.shares(200.0) == []
    peers.least = 12                        # a worker with 12 threads
    assert share(peers, 201.0) == [3, 3, 2, 2, 2]
    peers.cap = 0
    assert share(peers, 202.0) == [0] * 5
    peers.cap = 1
    assert sum(share(peers, 203.0)) == 1


def test_few_in_flight_are_shared_equally_from_one_per_connection_on():
    assert share(connected_peers(3, 7), 1.0) == [3, 2, 2]
    peers = connected_peers(2, 2)
    assert share(peers, 1.0) == [1, 1] and peers.shares(1000.0) == []


def test_an_idle_connection_passes_its_rdy_on_after_a_tick():
    peers = connected_peers(5, 1)
    seen = [share(peers, 100.0 + tick * 0.5).index(1) for tick in range(10)]
    assert seen == [0, 1, 2, 3, 4] * 2


def test_a_busy_connection_keeps_its_rdy_for_a_while():
    peers = connected_peers(3, 1)
    share(peers, 100.0)
    for tenth in range(1, 50):
        peers.all[0].received(100.0 + tenth / 10)
        assert share(peers, 100.0 + tenth / 10) == [1, 0, 0]
    peers.all[0].received(105.0)
    assert share(peers, 105.0) == [0, 1, 0]


def test_rdy_moves_only_when_what_is_in_flight_leaves_room():
    peers = connected_peers(2, 1)
    share(peers, 100.0)
    peers.all[0].connection.in_flight = 1
    assert share(peers, 104.0) == [1, 0]    # busy, although nothing has arrived for long
    assert share(peers, 105.0) == [0, 0]    # its time is up, and a message is in flight
    assert share(peers, 120.0) == [0, 0]
    peers.all[0].connection.in_flight = 0
    assert share(peers, 121.0) == [0, 1]


def test_a_lost_and_found_nsqd_is_a_line_each(caplog):
    peers = Peers("t", "c", "a:1", (), 1, 1, 60.0, Backoff(1.0))
    (peer,) = peers.all
    for now in (0.0, 1.0):
        peers.failed(peer, DOWN, now)
    peer.connected(Connected())
    peers.failed(peer, DOWN, 9.0)
    peer.connected(Connected())
    assert [record.getMessage() for record in caplog.records] == [
        f"{DOWN}; trying again", "a:1: connected", f"{DOWN}; trying again", "a:1: connected again"]
