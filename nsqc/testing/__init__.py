"""For tests of applications: a daemon of their own, and workers that run beside the test. nsqc.testing.plugin makes
pytest fixtures of it. See docs/client.md."""

from nsqc.testing.daemon import Daemon, NotStarted
from nsqc.testing.running import running

__all__ = ["Daemon", "NotStarted", "running"]
