"""From real daemons into the staging log, without Spark: order of sync and FIN, redeliveries, failures, pressure."""

import os
import socket
import time

import pytest

from nsqc.spark import options, stagelog
from nsqc.spark.stagelog import StageLog, read_place
from nsqc.spark.stager import Stager
from tests.spark.conftest import address
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept


class Run:
    """A stager with its log, as a reader has them."""

    def __init__(self, folder, where: str, start: bool = True, **more: str):
        peers = {} if "nsqlookupd" in more else {"nsqd": where}
        self.options = options.stream({**peers, "topic": "t", "channel": "c", "stagingDir": str(folder),
                                       "backoff": "0.02", "timeout": "60", "idleMs": "200", **more})
        self.log = StageLog(str(folder), "t", "c", self.options.segmentBytes, 100_000, wait=0)
        self.stager = Stager(self.options, self.log)
        if start:
            self.stager.start()

    def wait(self, rows: int) -> None:
        wait_until(lambda: self.log.rows >= rows or self.stager.error, f"{rows} rows in the log")
        assert self.stager.error is None and self.log.rows == rows

    def values(self) -> list[bytes]:
        return [value for place in self.log.places(0, self.log.rows)
                for value in stagelog.decode_frames(read_place(place), "t").column(0).to_pylist()]

    def stop(self) -> None:
        self.stager.stop()
        self.log.close()


@pytest.fixture
def run(tmp_path):
    """run(daemon address, option=...): stagers on one folder, all stopped with the test."""
    running = []

    def start(*daemons, **more) -> Run:
        running.append(Run(tmp_path / "stage", address(*daemons), **more))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def bodies(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def drained(daemon) -> bool:
    channel = daemon.channel("t", "c")
    return channel["depth"] == channel["in_flight_count"] == 0


def test_all_of_it_and_finished(daemon, run):
    one = daemon()
    one.publish("t", *bodies(0, 20_000))
    run = run(one, connections="2", maxInFlight="500")
    run.wait(20_000)
    assert sorted(run.values()) == bodies(0, 20_000)
    wait_until(lambda: drained(one), "FIN for all")


def test_windows_that_are_full_do_not_stop_it(daemon, run):
    one = daemon()
    one.publish("t", *bodies(0, 50))
    run = run(one, maxInFlight="1")
    run.wait(50)


def test_messages_larger_than_a_read(daemon, run):
    one = daemon()
    big = [bytes([n]) * 1_000_000 for n in range(8)]
    for body in big:
        one.publish("t", body, b"small")
    run = run(one)
    run.wait(16)
    assert sorted(value for value in run.values() if value != b"small") == big


def test_stopping_hands_everything_back_at_once(daemon, run):
    """Nothing is written: the linger time does not end. The next one gets the messages in flight, long before their
    message time-out of a minute."""
    one = daemon()
    one.publish("t", *bodies(0, 100))
    one.post("/channel/create?topic=t&channel=c")
    run = run(one, lingerMs="60000", maxInFlight="1000")
    wait_until(lambda: one.channel("t", "c")["in_flight_count"] == 100, "all in flight")
    run.stop()
    assert one.channel("t", "c") | {"clients": []} == one.channel("t", "c") | {
        "depth": 100, "in_flight_count": 0, "clients": [], "client_count": 0}


def test_what_was_synced_and_not_finished_is_dropped_when_it_comes_again(daemon, run, tmp_path):
    one = daemon("--msg-timeout=300ms")
    one.publish("t", *bodies(0, 1000))
    first = run(one, start=False)
    first.stager._finish = lambda: None     # the crash comes between sync and FIN
    first.stager.start()
    first.wait(1000)
    for peer in first.stager._peers.all:        # and the connection just breaks
        socket.socket(fileno=os.dup(peer.connection.fileno())).shutdown(2)
    first.stager._stopping = True
    first.stop()
    second = run(one)
    wait_until(lambda: second.stager.duplicates >= 1000 and drained(one), "the redelivery")
    assert second.log.rows == 1000


def test_what_is_redelivered_while_it_runs_is_dropped(daemon, run):
    """The connection breaks with FIN not sent; the same messages come again on the next one."""
    one = daemon("--msg-timeout=300ms")
    one.publish("t", *bodies(0, 500))
    run = run(one, start=False)
    held, send = [], run.stager._finish
    run.stager._finish = lambda: held.append(len(run.stager._done))
    run.stager.start()
    run.wait(500)
    run.stager._done.clear()
    run.stager._finish = send
    for peer in run.stager._peers.all:
        socket.socket(fileno=os.dup(peer.connection.fileno())).shutdown(2)
    wait_until(lambda: run.stager.duplicates >= 500 and drained(one), "the redelivery")
    assert run.log.rows == 500 and sorted(run.values()) == bodies(0, 500)


def test_a_daemon_that_restarts_is_found_again(daemon, run):
    one = daemon(kept())
    one.publish("t", *bodies(0, 10))
    run = run(one)
    run.wait(10)
    wait_until(lambda: drained(one), "FIN for all")
    assert one.stop() == 0
    time.sleep(0.1)
    one.start()
    one.publish("t", *bodies(10, 30))
    run.wait(30)


def test_new_nsqd_are_found_through_lookupd(daemon, run, lookupd):
    first, second = daemon(), daemon()
    first.publish("t", *bodies(0, 10))
    where = lookupd(first)
    run = run(nsqlookupd=where, lookupInterval="0.1")
    run.wait(10)
    second.publish("t", *bodies(10, 20))
    lookupd.servers[0].known.append(second)
    run.wait(20)
    nodes = {stagelog.decode_frames(read_place(place), "t").column(5)[0].as_py() for place in run.log.places(0, 20)}
    assert nodes == {address(first), address(second)}


def test_one_dead_nsqd_does_not_hold_the_others_up(daemon, run):
    dead, alive = daemon(kept()), daemon()
    where = [dead, alive]
    dead.kill()
    alive.publish("t", *bodies(0, 10))
    run = run(*where)
    run.wait(10)
    run.stager.drain_from_now()
    wait_until(run.stager.drained, "the end of the drain")
    assert not run.stager.unreachable()


def test_a_full_log_takes_no_more_and_goes_on_when_there_is_room(daemon, run):
    one = daemon()
    size = 1000
    for start in range(0, 2000, 200):
        one.publish("t", *(b"%06d" % n + b"x" * size for n in range(start, start + 200)))
    run = run(one, maxStagedBytes="300k", segmentBytes="64k", maxInFlight="50")
    wait_until(lambda: run.stager.full, "the pause")
    time.sleep(0.3)
    held = run.log.rows
    assert held < 600 and run.log.live_bytes < 500_000

    def gets_on() -> bool:
        run.log.release(run.log.rows)
        run.stager.wake()
        return run.log.rows >= 2000

    wait_until(gets_on, "2000 rows in the log")
    run.wait(2000)
    wait_until(lambda: drained(one), "FIN for all")


def test_a_drain_waits_only_for_what_was_there(daemon, run):
    one = daemon()
    one.publish("t", *bodies(0, 100))
    run = run(one, start=False)
    run.stager.drain_from_now()
    run.stager.start()
    wait_until(lambda: run.log.rows >= 100, "the messages")
    assert not run.stager.drained()
    end = time.monotonic() + WAIT_SECONDS
    number = 100
    while not run.stager.drained() and time.monotonic() < end:
        one.publish("t", b"later %d" % number)
        number += 1
        time.sleep(0.02)
    assert run.stager.drained()


def test_subscribing_to_what_is_refused_ends_it(daemon, run):
    one = daemon("--auth-http-address=127.0.0.1:1")
    run = run(one)
    wait_until(lambda: run.stager.error, "the error")
    assert "asks for AUTH" in str(run.stager.error)


def test_a_disk_that_fails_ends_it_and_nothing_is_finished(daemon, run, tmp_path):
    one = daemon()
    one.publish("t", *bodies(0, 100))
    run = run(one, start=False)
    run.log.append = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    run.stager.start()
    wait_until(lambda: run.stager.error, "the error")
    run.stop()
    channel = one.channel("t", "c")
    assert channel["depth"] + channel["in_flight_count"] == 100


def test_metrics_tell_of_nsqd_that_are_down_and_of_reconnections(run, daemon):
    one, other = daemon(kept()), daemon(kept())
    staging = run(one, other, http=f"127.0.0.1:{one.http_port}")
    one.publish("t", *(b"%d" % number for number in range(10)))
    staging.wait(10)
    told = wait_until(lambda: (found := staging.stager.metrics())["depth"] == 0 and found["nsqdUp"] == 2 and found)
    assert told == {"depth": 0, "nsqdUp": 2, "nsqdDown": {}, "unreachableSeconds": 0.0, "reconnects": 0,
                    "duplicates": 0, "paused": False}
    other.kill()
    told = wait_until(lambda: (found := staging.stager.metrics())["nsqdDown"] and found)
    assert told["nsqdUp"] == 1 and list(told["nsqdDown"]) == [address(other)]
    other.start()
    told = wait_until(lambda: (found := staging.stager.metrics())["nsqdUp"] == 2 and found)
    assert (told["reconnects"], told["nsqdDown"]) == (1, {})


def test_a_topic_that_nobody_has_is_no_reason_to_wait_for_ever(run, daemon, lookupd):
    staging = run(nsqlookupd=lookupd(), failWhenUnreachable="300ms")
    wait_until(lambda: staging.stager.error)
    assert str(staging.stager.error) == ("no nsqd could be reached for 0.3 s (failWhenUnreachable): nsqlookupd knows no "
                                         "nsqd that has topic t")


def test_nobody_there_may_be_waited_for_without_end(run, daemon):
    one = daemon(kept())
    one.kill()
    staging = run(one, failWhenUnreachable="0")
    wait_until(lambda: staging.stager.metrics()["unreachableSeconds"] > 0.5)
    assert staging.stager.error is None
    one.start()
    one.publish("t", b"x")
    staging.wait(1)
