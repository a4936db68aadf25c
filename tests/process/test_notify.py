"""Notifications to a service manager, without a daemon; tests/e2e/test_service.py has one."""

import asyncio
import contextlib
import os

import pytest
import uvloop

from nsqc.log import Log
from nsqc.process.machine import EnvironmentVariableError
from nsqc.process.running import ServiceManager
from tests.support.manager import Manager


@pytest.fixture
def log():
    with open(os.devnull, "wb") as sink:
        log = Log(descriptor=sink.fileno())
        yield log
        log.close()


def test_states(log, tmp_path):
    with contextlib.closing(Manager(f"{tmp_path}/notify")) as heard:
        manager = ServiceManager(log, {"NOTIFY_SOCKET": heard.address})
        assert manager.listens
        manager.ready("Listening")
        assert heard.hear() == {"READY": "1", "STATUS": "Listening"}
        manager.reloading()
        assert heard.hear()["RELOADING"] == "1"
        manager.stopping("Writing everything to disk")
        assert heard.hear()["STOPPING"] == "1"
        manager.close()
        assert not manager.listens
        manager.ready("nobody hears this")
        with pytest.raises(TimeoutError):
            heard.hear(0.05)


@pytest.mark.parametrize("variables,pings", [
    ({"WATCHDOG_USEC": "10000"}, True),
    ({"WATCHDOG_USEC": "10000", "WATCHDOG_PID": str(os.getpid())}, True),
    ({"WATCHDOG_USEC": "10000", "WATCHDOG_PID": "1"}, False),
    ({"WATCHDOG_USEC": "0"}, False),
])
def test_watchdog(log, tmp_path, variables, pings):
    async def scenario(manager):
        manager.watch(asyncio.get_running_loop())
        if pings:
            for _ in range(3):
                assert await asyncio.to_thread(heard.hear) == {"WATCHDOG": "1"}
        manager.close()

    with contextlib.closing(Manager(f"{tmp_path}/notify")) as heard:
        uvloop.run(scenario(ServiceManager(log, {"NOTIFY_SOCKET": heard.address, **variables})))
        if not pings:
            with pytest.raises(TimeoutError):
                heard.hear(0.05)


def test_malformed_variables(log):
    with pytest.raises(EnvironmentVariableError, match="WATCHDOG_USEC=soon is not a number"):
        ServiceManager(log, {"WATCHDOG_USEC": "soon"})
    assert not ServiceManager(log, {"NOTIFY_SOCKET": "relative/path"}).listens
    assert not ServiceManager(log, {}).listens
