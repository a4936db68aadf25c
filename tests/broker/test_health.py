"""The answer to /ping: its text while writes fail, the retries, and the events that clear the error."""

import asyncio
import errno
import os
from concurrent.futures import ThreadPoolExecutor

from nsqc.broker.health import WriteHealth, probe_error
from tests.broker.harness import Lines, until


class Queue:
    """A topic or channel that records its retries."""

    def __init__(self, name, probe_path=""):
        self.name, self.probe_path, self.retries = name, probe_path, 0

    def retry(self):
        self.retries += 1


def run(tmp_path, scenario, failing_sync=lambda: None):
    async def main():
        log = Lines()
        with ThreadPoolExecutor(1) as workers:
            health = WriteHealth(asyncio.get_running_loop(), workers, str(tmp_path), log, failing_sync)
            try:
                await scenario(health, log)
            finally:
                health.close()

    asyncio.run(main())


def test_a_stuck_channel_is_retried_until_it_heals(tmp_path):
    async def scenario(health, log):
        topic, channel = Queue(b"t"), Queue(b"c")
        assert (health.health(), health.failing) == ("OK", False)
        for _ in range(3):
            health.failed(topic, channel, errno.ENOSPC)
        assert health.health() == "NOK - failed to write t:c - No space left on device"
        assert health.failing
        assert log.lines == ["DISKQUEUE(t:c): write failed - No space left on device"], "not for each failure"
        await until(lambda: channel.retries >= 2)
        health.healed(None, None)
        assert health.failing, "another queue was written, which shows nothing for this one"
        health.healed(topic, channel)
        assert (health.health(), health.failing) == ("OK", False)
        assert log.lines[-1] == "DISKQUEUE: writes succeed again"

    run(tmp_path, scenario)


def test_a_deleted_channel_takes_its_failure_along(tmp_path):
    async def scenario(health, log):
        topic, channel = Queue(b"t"), Queue(b"c")
        health.failed(topic, channel, errno.EIO)
        health.forget(Queue(b"other"))
        assert health.failing
        health.forget(channel)
        assert health.health() == "OK"

    run(tmp_path, scenario)


def test_any_write_ends_the_complaint_about_a_topic(tmp_path):
    async def scenario(health, log):
        topic = Queue(b"t", str(tmp_path / "missing" / "file"))
        health.failed(topic, None, errno.ENOSPC)
        assert health.health() == "NOK - failed to write t - No space left on device"
        health.healed(None, None)
        assert health.health() == "OK"

    run(tmp_path, scenario)


def test_a_probe_notices_that_a_topic_could_be_written_again(tmp_path):
    """Without publishes, only the retry can notice."""
    data = tmp_path / "t.diskqueue.000000.dat"
    data.mkdir()    # cannot be opened for writing

    async def scenario(health, log):
        topic = Queue(b"t", str(data))
        health.failed(topic, None, errno.EISDIR)
        probe = asyncio.get_running_loop().run_in_executor(None, probe_error, str(tmp_path), str(data))
        assert (await probe).errno == errno.EISDIR
        assert health.failing
        os.rmdir(data)
        await until(lambda: not health.failing)
        assert list(tmp_path.iterdir()) == [], "nothing of the probe is left, and no queue file was created"

    run(tmp_path, scenario)


def test_failing_syncs_are_reported_behind_failing_writes(tmp_path):
    reason = "failed to sync t - Input/output error"

    async def scenario(health, log):
        assert health.health() == f"NOK - {reason}"
        assert not health.failing, "a sync is not a write"
        health.failed(Queue(b"t"), Queue(b"c"), errno.ENOSPC)
        assert "No space left" in health.health()

    run(tmp_path, scenario, lambda: reason)
