"""Retention continues after an exception."""

import asyncio

from nsqc.broker.health import Retention
from nsqc.store.work import Slicer
from tests.support.log import RecordingLog


class Broker:
    """Raises on its first checks."""

    def __init__(self, failures):
        self.failures = failures
        self.looks = 0

    def retain(self):
        self.looks += 1
        yield
        if self.looks <= self.failures:
            raise RuntimeError("can't start new thread")

    def rule_changed(self, name):
        yield
        raise OSError("no")


def test_a_look_that_fails_does_not_end_the_next(monkeypatch):
    monkeypatch.setattr("nsqc.broker.health.CHECK_RETENTION_S", 0.01)

    async def main():
        broker, log = Broker(failures=2), RecordingLog()
        broker.slicer = Slicer(asyncio.get_running_loop())
        retention = Retention(asyncio.get_running_loop(), broker, log)
        retention.rule_changed(None)
        while broker.looks < 5:
            await asyncio.sleep(0.01)
        retention.close()
        return log

    log = asyncio.run(main())
    assert sum("failed to remove segments" in str(line) for line in log.lines) == 3
