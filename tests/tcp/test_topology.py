"""Topology-aware consumption: consumers in the same zone first, then in the same region, and no message left
waiting."""

import asyncio
import json
import random

import pytest

from nsqc.client import Consumer, Producer, aio
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import identify

AWARE = ("--enable-experiment=topology-aware-consumption", "--topology-zone=z1", "--topology-region=r1")
PLACES = (("z1", "r1"), ("z2", "r1"), ("z2", "r2"))     # by distance
COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")


@pytest.fixture(params=["memory", "log"])
def aware(request, daemon):
    """Starts daemons that prefer near consumers, with topics of both kinds."""
    def start(*flags, **more):
        return daemon(*AWARE, f"--topic-storage={request.param}", *flags, **more)
    return start


def consumer(node, distance: int | None, rdy: int = 0, **more):
    """A subscribed client at that distance; None: one that does not report its place."""
    client = node.connect()
    if distance is not None:
        zone, region = PLACES[distance]
        identify(client, topology_zone=zone, topology_region=region, **more)
    return client.sub("t", "c", rdy)


def counts(node) -> list[int]:
    channel = node.channel("t", "c")
    return [channel.get(name, 0) for name in COUNTS]


def clients(node) -> list[dict]:
    """The consumers, in order of arrival."""
    channels = node.stats("t")["channels"] if node.stats()["topics"] else []
    return channels[0]["clients"] if channels else []


def ready(node, *rdy: int) -> None:
    """Waits until the consumers have these RDY counts."""
    wait_until(lambda: [client["ready_count"] for client in clients(node)] == [*rdy])


def test_the_nearest_that_is_ready_gets_a_message(aware):
    node = aware()
    far, mid, near = (consumer(node, distance, 2) for distance in (2, 1, 0))
    ready(node, 2, 2, 2)
    publisher = node.connect()
    for number in range(6):
        publisher.pub("t", b"%d" % number)
    assert [message.body for message in near.messages(2)] == [b"0", b"1"]
    assert [message.body for message in mid.messages(2)] == [b"2", b"3"]
    held = far.messages(2)
    assert [message.body for message in held] == [b"4", b"5"]
    assert counts(node) == [2, 2, 2]
    # The first ready consumer gets waiting messages, near or not.
    publisher.pub("t", b"6")
    far.fin(held[0])
    assert far.message().body == b"6"
    assert counts(node) == [2, 2, 3]


def test_consumers_of_one_zone_take_turns(aware):
    node = aware()
    far, one, other = consumer(node, 2, 100), consumer(node, 0, 100), consumer(node, 0, 100)
    ready(node, 100, 100, 100)
    node.connect().pub("t", *(b"x" for _ in range(50)))
    assert len(one.messages(25)) == len(other.messages(25)) == 25
    assert far.quiet(0.1)
    assert counts(node) == [50, 0, 0]


def test_a_near_consumer_that_stops_or_leaves_holds_nothing_up(aware):
    node = aware()
    far, near = consumer(node, 2, 10), consumer(node, 0, 10)
    ready(node, 10, 10)
    publisher = node.connect()
    publisher.pub("t", b"a")
    near.fin(near.message())
    near.command("RDY 0")
    ready(node, 10, 0)
    publisher.pub("t", b"b")
    far.fin(far.message())
    near.command("RDY 10")
    ready(node, 10, 10)
    publisher.pub("t", b"c")
    assert near.message().body == b"c"
    near.close()    # its messages come again after the time-out, and new messages are delivered
    wait_until(lambda: node.channel("t", "c")["client_count"] == 1)
    publisher.pub("t", b"d")
    assert far.message().body == b"d"
    assert counts(node) == [2, 0, 2]    # includes disconnected ones


def test_what_comes_back_goes_to_the_nearest(aware):
    node = aware()
    far = consumer(node, 2, 10)
    publisher = node.connect()
    publisher.pub("t", b"a")
    message = far.message()
    near = consumer(node, 0, 10)
    ready(node, 10, 10)
    far.send(b"REQ " + message.id + b" 0\n")
    again = near.message()
    assert (again.body, again.attempts) == (b"a", 2)
    near.send(b"REQ " + message.id + b" 1\n")
    again = near.message()
    assert (again.body, again.attempts) == (b"a", 3)
    near.fin(again)
    quick = consumer(node, 0, 10, msg_timeout=1000)
    near.close()
    wait_until(lambda: node.channel("t", "c")["client_count"] == 2)
    publisher.pub("t", b"b")
    assert quick.message().body == b"b"
    quick.command("RDY 0")
    assert far.message(WAIT_SECONDS).body == b"b"     # once it has timed out


def test_a_backlog_goes_to_everybody(aware):
    node = aware("--mem-queue-size=10")
    publisher = node.connect()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publisher.pub("t", *(b"%d" % number for number in range(1000)))
    far, near = consumer(node, 2, 1), consumer(node, 0, 1)
    bodies = set()
    for _ in range(500):
        for client in (far, near):
            message = client.message()
            bodies.add(message.body)
            client.fin(message)
    assert len(bodies) == 1000
    assert counts(node) == [500, 0, 500]


def test_a_consumer_that_does_not_say_where_it_is_is_elsewhere(aware):
    node = aware()
    unknown, mid = consumer(node, None, 10), consumer(node, 1, 10)
    ready(node, 10, 10)
    node.connect().pub("t", b"x")
    assert mid.message().body == b"x"
    assert counts(node) == [0, 1, 0]
    node.post("/channel/pause?topic=t&channel=c")
    mid.close()
    node.connect().pub("t", b"y")
    node.post("/channel/unpause?topic=t&channel=c")
    assert unknown.message().body == b"y"
    assert counts(node) == [0, 1, 1]


@pytest.mark.parametrize("flags,near", [
    (("--topology-zone=z1",), ("z1", "")), (("--topology-region=r1",), ("", "r1")), ((), None)])
def test_only_names_that_are_given_count(daemon, flags, near):
    """Two that report no place are not in the same zone."""
    node = daemon(AWARE[0], *flags)
    silent = consumer(node, None, 10)
    other = node.connect()
    identify(other, topology_zone=near[0] if near else "", topology_region=near[1] if near else "")
    other.sub("t", "c", 10)
    ready(node, 10, 10)
    publisher = node.connect()
    for _ in range(4):
        publisher.pub("t", b"x")
    if near:
        assert len(other.messages(4)) == 4
    else:
        assert len(silent.messages(2)) == len(other.messages(2)) == 2
        assert counts(node) == [0, 0, 4]


def test_any_order_of_events(aware):
    """One message in flight: it goes to one of the nearest ready consumers, and waits only while none is ready."""
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    node = aware("--msg-timeout=10m")
    publisher = node.connect()
    node.post("/topic/create?topic=t")
    clients: list[list] = []    # client, distance, RDY, messages it holds
    delivered = [0, 0, 0]
    for step in range(300):
        match choice.choice(("join", "join", "leave", "rdy", "publish", "publish", "publish", "finish", "requeue")):
            case "join" if len(clients) < 8:
                distance = choice.randrange(3)
                clients.append([consumer(node, distance), distance, 0, []])
            case "leave" if clients:
                gone = clients.pop(choice.randrange(len(clients)))
                gone[0].close()
                wait_until(lambda: node.channel("t", "c")["client_count"] == len(clients))
            case "rdy" if clients:
                one = choice.choice(clients)
                one[2] = choice.randrange(4)
                one[0].command(f"RDY {one[2]}")
            case "finish" if any(one[3] for one in clients):
                one = choice.choice([one for one in clients if one[3]])
                one[0].fin(one[3].pop())
            case "publish" | "requeue" as how:
                free = [one for one in clients if one[2] > len(one[3])]
                holders = [one for one in clients if one[3]]
                if not free or (how == "requeue" and not holders):
                    continue
                # Everything before it has taken effect.
                wait_until(lambda: [(c["ready_count"], c["in_flight_count"]) for c in node.channel("t", "c")["clients"]]
                           == [(one[2], len(one[3])) for one in clients])
                if how == "publish":
                    publisher.pub("t", b"%d" % step)
                else:
                    one = choice.choice(holders)
                    one[0].send(b"REQ " + one[3].pop().id + b" 0\n")
                nearest = min(one[1] for one in free)
                delivered[nearest] += 1
                wait_until(lambda: counts(node) == delivered, f"step {step} of seed {seed}: {delivered}")
                in_flight = [c["in_flight_count"] for c in node.channel("t", "c")["clients"]]
                [got] = [one for one, count in zip(clients, in_flight, strict=True) if count > len(one[3])]
                assert got[1] == nearest, seed
                got[3].append(got[0].message())


# ---------------------------------------------------------------------- topology in answers


def test_what_is_announced(daemon):
    node = daemon(*AWARE)
    answer = identify(node.connect())
    assert list(answer)[-2:] == ["topology_region", "topology_zone"]
    assert (answer["topology_region"], answer["topology_zone"]) == ("r1", "z1")
    info = json.loads(node.http("GET", "/info")[1])
    assert (info["topology_region"], info["topology_zone"]) == ("r1", "z1")
    client = consumer(node, 1)
    [shown] = node.channel("t", "c")["clients"]
    assert (shown["topology_zone"], shown["topology_region"]) == ("z2", "r1")
    client.close()
    with pytest.raises(AssertionError, match="E_BAD_BODY"):
        identify(node.connect(), topology_zone=5)


def test_nothing_is_announced_without_the_options(daemon):
    """As nsqd 1.3.0: no client is notified, and a client's own report does not count."""
    node = daemon()
    client = node.connect()
    assert not any("topology" in name for name in identify(client, topology_zone=5, topology_region="r"))
    client.sub("t", "c", 1)
    node.connect().pub("t", b"x")
    client.message()
    assert "topology" not in node.http("GET", "/info")[1].decode()
    assert not any(word in node.http("GET", "/stats?format=json")[1].decode() for word in ("topology", *COUNTS))


def test_a_zone_without_the_experiment_is_announced_and_no_more(daemon):
    node = daemon("--topology-zone=z1")
    far, near = consumer(node, 2, 10), consumer(node, 0, 10)
    assert identify(node.connect())["topology_zone"] == "z1"
    ready(node, 10, 10)
    publisher = node.connect()
    for _ in range(4):
        publisher.pub("t", b"x")
    assert len(far.messages(2)) == len(near.messages(2)) == 2
    assert counts(node) == [0, 0, 0]


def test_the_lookup_server_lists_where_nodes_are(daemon, tmp_path):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        nodes = [daemon(f"--lookupd-tcp-address=127.0.0.1:{server.tcp_port}", f"--broadcast-address={name}", *flags)
                 for name, flags in (("a", AWARE), ("b", ()))]
        for node in nodes:
            node.post("/topic/create?topic=t")
        wait_until(lambda: server.found("t") == ["a", "b"])
        for found in (server.get("/nodes")["producers"], server.get("/lookup?topic=t")["producers"],
                      server.get("/debug")["topic:t:"]):
            by_name = {one["broadcast_address"]: one for one in found}
            assert (by_name["a"]["topology_zone"], by_name["a"]["topology_region"]) == ("z1", "r1")
            assert not any("topology" in name for name in by_name["b"])
    finally:
        server.close()


def test_an_unknown_experiment_is_refused(daemon):
    with pytest.raises(AssertionError, match="--enable-experiment must be topology-aware-consumption, not 'warp'"):
        daemon("--enable-experiment=warp")


# ---------------------------------------------------------------------- our own clients


def test_the_blocking_client_says_where_it_is(daemon):
    node = daemon(*AWARE)
    address = f"127.0.0.1:{node.tcp_port}"
    with (Consumer("t", "c", address, topology_zone="z2", topology_region="r2") as far,
          Consumer("t", "c", address, topology_zone="z1", topology_region="r1") as near, Producer(address) as producer):
        wait_until(lambda: far.get(timeout=0.01) is None and near.get(timeout=0.01) is None
                   and [client["ready_count"] for client in clients(node)] == [1, 1])
        producer.publish("t", b"x")
        with near.get(timeout=WAIT_SECONDS) as message:
            assert message.body == b"x"
    assert counts(node) == [1, 0, 0]


def test_the_asyncio_client_says_where_it_is(daemon):
    node = daemon(*AWARE)
    address = f"127.0.0.1:{node.tcp_port}"

    async def main():
        async with (aio.Consumer("t", "c", address, topology_zone="z2", topology_region="r2") as far,
                    aio.Consumer("t", "c", address, topology_zone="z2", topology_region="r1") as near,
                    aio.Producer(address) as producer):
            assert await far.get(timeout=0.01) is None and await near.get(timeout=0.01) is None
            await asyncio.to_thread(ready, node, 1, 1)
            await producer.publish("t", b"x")
            with await near.get(timeout=WAIT_SECONDS) as message:
                assert message.body == b"x"

    asyncio.run(main())
    assert counts(node) == [0, 1, 0]
