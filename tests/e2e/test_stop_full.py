"""A stop on a full disk: fitting messages are saved, lost ones are reported, also by the exit code."""

import re
import signal

from tests.e2e.test_restart import lift_file_size, limit_file_size

BODY = b"%05d" + b"x" * 195
COUNT = 4000


def fill(node) -> None:
    """Fills a channel with messages in memory only; files are limited to 200 kB."""
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    for number in range(0, COUNT, 500):
        producer.pub("t", *(BODY % n for n in range(number, number + 500)))
    assert node.channel("t", "c")["depth"] == COUNT


def test_what_does_not_fit_is_reported(daemon):
    node = daemon("--mem-queue-size=10000", preexec=limit_file_size)
    fill(node)
    assert node.stop(signal.SIGTERM) == 1
    line, = (line for line in node.log.splitlines() if "failed to write messages" in line)
    lost = int(re.search(r"(\d+) messages are lost", line)[1])
    assert "CHANNEL(c)" in line and "topic t " in line and "File too large" in line
    assert 0 < lost < COUNT
    node.preexec = None
    node.start()
    assert node.channel("t", "c")["depth"] == COUNT - lost
    consumer = node.connect().sub("t", "c", 100)
    bodies = [message.body for message in consumer.messages(COUNT - lost, finish=True)]
    assert bodies == [BODY % n for n in range(COUNT - lost)]


def test_what_fits_again_is_kept(daemon):
    node = daemon("--mem-queue-size=10000", preexec=limit_file_size)
    fill(node)
    lift_file_size(node.pid)
    assert node.stop(signal.SIGTERM) == 0
    node.preexec = None
    node.start()
    assert node.channel("t", "c")["depth"] == COUNT
