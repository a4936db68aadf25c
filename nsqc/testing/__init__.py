"""For tests of applications: a private daemon, and workers that run beside the test. nsqc.testing.plugin provides
both as pytest fixtures. See docs/client.md."""

from nsqc.testing.daemon import Daemon, NotStarted
from nsqc.testing.running import running

__all__ = ["Daemon", "NotStarted", "running"]
