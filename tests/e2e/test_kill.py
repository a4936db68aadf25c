"""kill -9 after every kind of event: each acknowledged, unfinished message on disk is delivered again.

A case causes the event and returns the messages that each channel must then deliver. Between event and kill no client
talks to the daemon: it has to write without a reply that depends on it. The kill comes at the worst moment: when the
topic's positions on disk have passed the messages, or when a sync has been due for a while.

Slow: a case waits until a sync must have become due (2 s), and for time-outs before that.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.counting import consume, numbered
from tests.support.daemon import Client, Daemon, wait_until

MANY = 50_000
FEW = 1000
SYNCED_SECONDS = 3          # --sync-timeout is 2 s
TIMEOUT_SECONDS = 1         # of messages in flight
FLAGS = (f"--msg-timeout={TIMEOUT_SECONDS}s",)

Wanted = dict[str, list[bytes]]     # bodies by channel


@dataclass
class Case:
    """A daemon, and the connections that stay open until the kill."""

    node: Daemon
    clients: list[Client]

    def make(self, topic: str, *channels: str) -> None:
        self.node.post(f"/topic/create?topic={topic}")
        for channel in channels:
            self.node.post(f"/channel/create?topic={topic}&channel={channel}")

    def in_flight(self, count: int, bodies: list[bytes]) -> list[bytes]:
        """Messages from disk in flight to a client that accepts no more; returns their ids."""
        self.make("t", "c")
        self.node.publish("t", *bodies)
        client = self.node.connect()
        self.clients.append(client)
        client.sub("t", "c", count)
        ids = [message.id for message in client.messages(count)]
        client.command("RDY 0")
        return ids

    def drained(self, topic: str = "t", seconds: float = SYNCED_SECONDS) -> None:
        """Returns when the topic's positions on disk show an empty topic, or after this many seconds."""
        path = self.node.data_path / f"{topic}.diskqueue.meta.dat"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError, IndexError):
                if path.read_text().splitlines()[0] == "0":
                    return
            time.sleep(0.01)


def synced() -> None:
    """Waits until a sync must have become due."""
    time.sleep(SYNCED_SECONDS)


# ---------------------------------------------------------------------- a topic's backlog drains

def first_channel(case: Case) -> Wanted:
    case.make("t")
    bodies = numbered(MANY)
    case.node.publish("t", *bodies)
    case.node.post("/channel/create?topic=t&channel=c")
    case.drained()
    return {"c": bodies}


def paused_backlog(case: Case, *channels: str) -> list[bytes]:
    case.make("t", *channels)
    case.node.post("/topic/pause?topic=t")
    bodies = numbered(MANY)
    case.node.publish("t", *bodies)
    return bodies


def unpaused_topic(case: Case) -> Wanted:
    bodies = paused_backlog(case, "c")
    case.node.post("/topic/unpause?topic=t")
    case.drained()
    return {"c": bodies}


def several_channels(case: Case) -> Wanted:
    bodies = paused_backlog(case, "a", "b", "c")
    case.node.post("/topic/unpause?topic=t")
    case.drained()
    return {"a": bodies, "b": bodies, "c": bodies}


def channel_deleted_beside_others(case: Case) -> Wanted:
    bodies = paused_backlog(case, "a", "b", "c")
    case.node.post("/topic/unpause?topic=t")
    case.node.post("/channel/delete?topic=t&channel=a")
    case.drained()
    return {"b": bodies, "c": bodies}


def channel_emptied_beside_others(case: Case) -> Wanted:
    bodies = paused_backlog(case, "a", "b")
    case.node.post("/topic/unpause?topic=t")
    case.node.post("/channel/empty?topic=t&channel=a")
    case.drained()
    return {"b": bodies}


def topic_paused_during_the_drain(case: Case) -> Wanted:
    bodies = paused_backlog(case, "c")
    case.node.post("/topic/unpause?topic=t")
    case.node.post("/topic/pause?topic=t")
    synced()
    return {"c": bodies}


def topic_emptied(case: Case) -> Wanted:
    """Messages in the channel stay, and so do those published later."""
    case.make("t", "c")
    before, between, after = numbered(FEW, "a"), numbered(FEW, "b"), numbered(FEW, "c")
    case.node.publish("t", *before)
    wait_until(lambda: case.node.channel("t", "c")["depth"] == FEW)
    case.node.post("/topic/pause?topic=t")
    case.node.publish("t", *between)
    case.node.post("/topic/empty?topic=t")
    case.node.publish("t", *after)
    case.node.post("/topic/unpause?topic=t")
    case.drained()
    return {"c": before + after}


def killed_at_once(case: Case) -> Wanted:
    """In the middle of the drain, when each message is in the topic or in the channel."""
    bodies = paused_backlog(case, "a", "b")
    case.node.post("/topic/unpause?topic=t")
    return {"a": bodies, "b": bodies}


def terminated_during_the_drain(case: Case) -> Wanted:
    """SIGTERM, and the kill before the daemon has stopped, as by a service manager with too short a timeout."""
    bodies = paused_backlog(case, "a", "b")
    case.node.post("/topic/unpause?topic=t")
    case.node.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        case.node.process.wait(0.02)
    return {"a": bodies, "b": bodies}


def healed_after_a_full_disk(case: Case) -> Wanted:
    """The channel's file cannot grow in the middle of the drain; later it can."""
    case.make("t")
    bodies = numbered(MANY)
    case.node.publish("t", *bodies)
    limit_file_size(case.node.pid, 200_000)
    case.node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: case.node.http("GET", "/ping")[0] == 500, "the drain to fail")
    limit_file_size(case.node.pid, resource.RLIM_INFINITY)
    case.drained(seconds=2 * SYNCED_SECONDS)
    return {"c": bodies}


def limit_file_size(pid: int, limit: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


# ---------------------------------------------------------------------- messages in flight or deferred come back

def timed_out(case: Case) -> Wanted:
    bodies = numbered(FEW)
    case.in_flight(FEW, bodies)
    time.sleep(TIMEOUT_SECONDS)
    synced()
    return {"c": bodies}


def requeued_at_once(case: Case) -> Wanted:
    bodies = numbered(FEW)
    ids = case.in_flight(FEW, bodies)
    case.clients[0].send(b"".join(b"REQ " + message_id + b" 0\n" for message_id in ids))
    synced()
    return {"c": bodies}


def requeued_and_due(case: Case) -> Wanted:
    bodies = numbered(FEW)
    ids = case.in_flight(FEW, bodies)
    case.clients[0].send(b"".join(b"REQ " + message_id + b" 500\n" for message_id in ids))
    time.sleep(0.5)
    synced()
    return {"c": bodies}


def deferred_and_due(case: Case) -> Wanted:
    """DPUB: a delay lives in memory, but once due, the message is like any other."""
    case.make("t", "c")
    bodies = numbered(100)
    client = case.node.connect()
    case.clients.append(client)
    for body in bodies:
        client.ok("DPUB t 500", body)
    time.sleep(0.5)
    synced()
    return {"c": bodies}


def client_gone(case: Case) -> Wanted:
    """The client disconnects without finishing; its messages go back at once or when they time out."""
    bodies = numbered(FEW)
    case.in_flight(FEW, bodies)
    case.clients.pop().close()
    time.sleep(TIMEOUT_SECONDS)
    synced()
    return {"c": bodies}


def partly_finished(case: Case) -> Wanted:
    """Finished messages need not be delivered; the others time out."""
    bodies = numbered(FEW)
    ids = case.in_flight(FEW, bodies)
    case.clients[0].send(b"".join(b"FIN " + message_id + b"\n" for message_id in ids[::2]))
    time.sleep(TIMEOUT_SECONDS)
    synced()
    return {"c": bodies[1::2]}


CASES: list[Callable[[Case], Wanted]] = [
    first_channel, several_channels, unpaused_topic, channel_deleted_beside_others, channel_emptied_beside_others,
    topic_paused_during_the_drain, topic_emptied, killed_at_once, terminated_during_the_drain,
    healed_after_a_full_disk, timed_out, requeued_at_once, requeued_and_due, deferred_and_due, client_gone,
    partly_finished]


@pytest.mark.parametrize("event", CASES, ids=lambda event: event.__name__)
def test_nothing_on_disk_is_lost(daemon, event):
    lost_after(daemon("--mem-queue-size=0", *FLAGS, preexec=no_signal), event, spared=0)


@pytest.mark.parametrize("event", [first_channel, timed_out], ids=lambda event: event.__name__)
def test_no_more_is_lost_than_memory_holds(daemon, event):
    """A queue in memory dies with the process, and nothing else does."""
    room = 100
    lost_after(daemon(f"--mem-queue-size={room}", *FLAGS), event, spared=room)


def no_signal() -> None:
    """Turns a file that cannot grow into an error instead of a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def lost_after(node: Daemon, event: Callable[[Case], Wanted], spared: int) -> None:
    """Runs the case, kills, restarts and counts; each channel may lack `spared` messages."""
    case = Case(node, [])
    wanted = event(case)
    node.kill()
    for client in case.clients:
        client.close()
    node.start()
    node.post("/topic/unpause?topic=t")
    for channel, bodies in wanted.items():
        counts = consume(node, "t", channel, set(bodies))
        missing = [body for body in bodies if body not in counts]
        assert len(missing) <= spared, (
            f"{channel} lacks {len(missing)} of {len(bodies)} messages, from {missing[0]!r} to {missing[-1]!r}")


@pytest.mark.parametrize("messages", [0, 50])
def test_a_channel_that_was_emptied_right_after_its_creation(daemon, messages):
    """Until nsqd.dat has it, only its files prove that it exists."""
    node = daemon("--mem-queue-size=0")
    for number in range(4):
        node.post(f"/topic/create?topic=t{number}")
        node.post(f"/channel/create?topic=t{number}&channel=c")
        if messages:
            node.post(f"/mpub?topic=t{number}", b"x\n" * messages)
        node.post(f"/channel/empty?topic=t{number}&channel=c")
        node.kill()
        node.start()
        assert [channel["channel_name"] for channel in node.stats(f"t{number}")["channels"]] == ["c"]
