"""Extension modules of nsqc: every .pyx below nsqc/ is one module.

NSQC_BUILD=release (default)  optimised, no bounds checks
NSQC_BUILD=debug              bounds and overflow checks, line tracing, live-object counters (nsqc.debug)
NSQC_BUILD=asan               the debug build under AddressSanitizer
NSQC_ANNOTATE=1               also writes Cython's annotated HTML beside each .pyx
NSQC_PROGRESS=N               each module that is done is told on file descriptor N (packaging/compile.py shows it)
"""

import itertools
import os
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILD = os.environ.get("NSQC_BUILD", "release")
if BUILD not in ("release", "debug", "asan"):
    raise SystemExit(f"NSQC_BUILD={BUILD}: use release, debug or asan")
DEBUG = BUILD != "release"

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "binding": False,
    "linetrace": DEBUG,
    "overflowcheck": False,
}

COMPILE = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
           # Cython's own helpers, not our code: casts between function pointer types, unused static helpers.
           "-Wno-cast-function-type", "-Wno-unused-function", "-Wno-unreachable-code", "-Wno-sign-compare",
           "-Wno-deprecated-declarations"]
LINK: list[str] = []
if BUILD == "release":
    COMPILE += ["-O3", "-fvisibility=hidden", "-fno-plt"]
else:
    COMPILE += ["-O1", "-g", "-Wno-maybe-uninitialized"]
if BUILD == "asan":
    COMPILE += ["-fsanitize=address", "-fno-omit-frame-pointer"]
    LINK += ["-fsanitize=address"]

MACROS = [("CYTHON_FAST_THREAD_STATE", "1"), ("NSQC_DEBUG", "1" if DEBUG else "0")]
if DEBUG:
    # From CPython 3.13 on, sys.monitoring would leave line coverage of compiled modules empty.
    MACROS += [("CYTHON_TRACE", "1"), ("CYTHON_USE_SYS_MONITORING", "0")]

Options.warning_errors = True
Options.fast_fail = True


def extensions() -> list[Extension]:
    found = sorted(Path("nsqc").rglob("*.pyx"))
    return [
        Extension(".".join(path.with_suffix("").parts), [str(path)], define_macros=MACROS,
                  extra_compile_args=COMPILE, extra_link_args=LINK, include_dirs=["nsqc"])
        for path in found
    ]


def tell(stage: str, done: int, total: int) -> None:
    if "NSQC_PROGRESS" in os.environ:
        os.write(int(os.environ["NSQC_PROGRESS"]), f"{stage} {done} {total}\n".encode())


def translated() -> list[Extension]:
    """The modules in C."""
    found = extensions()
    made = []
    for done, one in enumerate(found, 1):
        made += cythonize([one], compiler_directives=DIRECTIVES, annotate=bool(os.environ.get("NSQC_ANNOTATE")),
                          build_dir=f"build/{BUILD}/cython", nthreads=0)
        tell("translating-to-C", done, len(found))
    return made


class Compiled(build_ext):
    """Tells of each module that is done; several are made at a time."""

    def run(self) -> None:
        self._done = itertools.count(1)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        tell("compiling", next(self._done), len(self.extensions))


setup(
    cmdclass={"build_ext": Compiled},
    # A base for each mode: what one has compiled is not up to date for another.
    options={"build": {"build_base": f"build/{BUILD}"}, "build_ext": {"parallel": os.cpu_count()}},
    ext_modules=translated(),
)
