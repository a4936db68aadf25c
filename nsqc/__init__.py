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


def _use_installed() -> None:
    """Puts an installed nsqc in the place of sources that are not compiled. Python looks for modules in the folder of a
    script, and in the working folder of a Spark worker, before it looks where pip has installed them: that may be a
    checkout."""
    import os
    import sys

    folder = os.path.dirname(__file__)
    root = os.path.dirname(folder)
    if not os.path.exists(os.path.join(root, "setup.py")):
        return
    from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

    def is_compiled(package: str) -> bool:
        return any(os.path.exists(os.path.join(package, "wire", f"codec{suffix}")) for suffix in EXTENSION_SUFFIXES)

    if is_compiled(folder):
        return
    from importlib.util import module_from_spec

    for place in sys.path:
        spec = PathFinder.find_spec(__name__, [place]) if is_compiled(os.path.join(place, __name__)) else None
        if spec is not None and spec.loader is not None:
            sys.modules[__name__] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return


_use_installed()
