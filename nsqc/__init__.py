"""nsqc: a drop-in nsqd and nsqlookupd with tools, in Cython on uvloop. Imports no compiled module."""

import os
import sys

__version__ = "0.1.0"

# The nsqd release that nsqc matches; clients and scripts read it from --version, IDENTIFY and /info.
NSQD_VERSION = "1.3.0"


_PACKAGE = os.path.dirname(os.path.abspath(__file__))
# An installed package has no setup.py beside it.
_IS_CHECKOUT = os.path.exists(os.path.join(os.path.dirname(_PACKAGE), "setup.py"))


def own_version() -> str:
    """The version for people: nsqc's own, the NSQ version it is compatible with, and the source checkout it runs from.
    Python started in a compiled checkout imports that and not an installed package."""
    place = f", source checkout {os.path.dirname(_PACKAGE)}" if _IS_CHECKOUT else ""
    return f"nsqc {__version__} (compatible with NSQ {NSQD_VERSION}, Python {sys.version.split()[0]}{place})"


def version_line(name: str = "nsqd") -> str:
    """In nsqd's form, with the matching nsqd version: scripts read the second word."""
    return f"{name} v{NSQD_VERSION} (built w/nsqc-{__version__}-python{sys.version.split()[0]})"


def _is_compiled(package: str) -> bool:
    from importlib.machinery import EXTENSION_SUFFIXES

    return any(os.path.exists(os.path.join(package, "wire", f"parser{suffix}")) for suffix in EXTENSION_SUFFIXES)


def _use_installed(package: str) -> None:
    """Substitutes an installed nsqc for uncompiled sources. Python searches a script's folder, and a Spark worker's
    working folder, before the folders of installed packages: it may be a checkout.

    Raises ImportError if none is installed.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    for place in sys.path:
        spec = PathFinder.find_spec(__name__, [place]) if _is_compiled(os.path.join(place, __name__)) else None
        if spec is not None and spec.loader is not None:
            sys.modules[__name__] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return
    # Without this, the failure would name some compiled module instead of the cause.
    raise ImportError(f"nsqc is imported from the source checkout {os.path.dirname(package)}, which is not compiled "
                      f"for Python {sys.version.split()[0]}: run make in it; or, to use an installed nsqc, start "
                      "Python in another folder or with -P")


if _IS_CHECKOUT and not _is_compiled(_PACKAGE):
    _use_installed(_PACKAGE)
