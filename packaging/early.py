"""Runs first in the executable, before the rest is loaded: a signal during that ends it, without a traceback."""

# Both are part of the interpreter; `signal` and `os` would load more.
import _signal
import posix


def leave(number, frame):
    """A signal handler: ends the process at once, as a requested stop."""
    posix._exit(0)


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
if posix.getpid() == 1:
    # The kernel ignores signals for the first process of a container unless it handles them.
    _signal.signal(_signal.SIGTERM, leave)
    _signal.signal(_signal.SIGINT, leave)
