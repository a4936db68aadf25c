"""What the executable runs."""

import sys

from nsqc.cli import main
from nsqc.systemd import is_unpacked


def leave_with_the_parent():
    """The executable of one file is two processes: where the first, which everybody knows, is killed, the daemon stops.

    Otherwise it would stay behind, and hold ports and data path.
    """
    import ctypes
    import signal

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)


if is_unpacked():
    leave_with_the_parent()
sys.exit(main())
