"""nsqc: a drop-in nsqd and nsqlookupd with tools, in Cython on uvloop. Imports no compiled module."""

import os

__version__ = "0.1.0"

# The nsqd release whose behaviour nsqc keeps; clients and scripts read it from --version, IDENTIFY and /info.
NSQD_VERSION = "1.3.0"

_TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _is_lacking_modules(tree: str) -> bool:
    """Whether this is a source checkout without compiled modules for this Python."""
    if not os.path.exists(os.path.join(tree, "setup.py")):
        return False
    from importlib.machinery import EXTENSION_SUFFIXES

    module = os.path.join(tree, "nsqc", "wire", "names")
    return not any(os.path.exists(module + suffix) for suffix in EXTENSION_SUFFIXES)


# A checkout in which Python was started comes before installed packages.
if _is_lacking_modules(_TREE):
    import sys

    # Without this a failure would name some compiled module, and not the reason.
    raise ImportError(f"nsqc is imported from the source checkout {_TREE}, which is not compiled for Python "
                      f"{sys.version.split()[0]}: run make in it; or, to use an installed nsqc, start Python in "
                      "another folder or with -P")


def own_version() -> str:
    """What people are shown: nsqc's version and the NSQ version it is compatible with."""
    import sys

    return f"nsqc {__version__} (compatible with NSQ {NSQD_VERSION}, Python {sys.version.split()[0]})"


def version_line(name: str = "nsqd") -> str:
    """In nsqd's form, with the nsqd version that is kept to: scripts read it from the second word."""
    import sys

    return f"{name} v{NSQD_VERSION} (built w/nsqc-{__version__}-python{sys.version.split()[0]})"
