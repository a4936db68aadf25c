"""nsqc: a drop-in nsqd and nsqlookupd with tools, in Cython on uvloop. Imports no compiled module."""

__version__ = "0.1.0"

# The nsqd release whose behaviour nsqc keeps; clients and scripts read it from --version, IDENTIFY and /info.
NSQD_VERSION = "1.3.0"


def own_version() -> str:
    """What people are shown: nsqc's version and the NSQ version it is compatible with."""
    import sys

    return f"nsqc {__version__} (compatible with NSQ {NSQD_VERSION}, Python {sys.version.split()[0]})"


def version_line(name: str = "nsqd") -> str:
    """In nsqd's form, with the nsqd version that is kept to: scripts read it from the second word."""
    import sys

    return f"{name} v{NSQD_VERSION} (built w/nsqc-{__version__}-python{sys.version.split()[0]})"
