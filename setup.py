"""Extension modules of nsqc: every .pyx below nsqc/ is one module.

A build in place or for debugging also compiles tests/compiled, through which tests and benches drive C
functions from Python. No package contains it.

NSQC_BUILD=release (default)  optimised, no bounds checks
NSQC_BUILD=debug              bounds and overflow checks, live-object counters
NSQC_BUILD=asan               the debug build under AddressSanitizer
NSQC_TRACE=1                  a debug build in which each line can be traced, for coverage
NSQC_ANNOTATE=1               also writes Cython's annotated HTML beside each .pyx
NSQC_TRANSLATED=FOLDER        takes C from a folder, by what is in the sources, and leaves it there
NSQC_COMPILED=FOLDER          takes the modules from a folder in which they have been compiled
NSQC_INCLUDE=FOLDERS          where another Python's headers are, for which it compiles (packaging/cross.py)
NSQC_SUFFIX=.cpython-...so    what that one's modules end with
NSQC_PROGRESS=N               reports each finished module on file descriptor N (packaging/compile.py shows it)
"""

import itertools
import multiprocessing
import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler import Options
from Cython.Compiler.Errors import CompileError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILD = os.environ.get("NSQC_BUILD", "release")
if BUILD not in ("release", "debug", "asan"):
    raise SystemExit(f"NSQC_BUILD={BUILD}: use release, debug or asan")
DEBUG = BUILD != "release"
TRACE = DEBUG and bool(os.environ.get("NSQC_TRACE"))
COMPILED = os.environ.get("NSQC_COMPILED", "")
INCLUDE = [folder for folder in os.environ.get("NSQC_INCLUDE", "").split(os.pathsep) if folder]
SUFFIX = os.environ.get("NSQC_SUFFIX", "")
if os.path.exists("packaging/stubs.py"):      # not in an sdist, which has the stubs
    runpy.run_path("packaging/stubs.py", run_name="__main__")
FOLDERS = ("nsqc", "tests/compiled") if "--inplace" in sys.argv or DEBUG else ("nsqc",)


def linker_knows(option: str) -> bool:
    """Whether the C compiler's linker takes an option."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.c")
        source.write_text("int nothing;\n")
        return subprocess.run([*compiler, "-shared", "-fPIC", option, "-o", Path(folder, "empty.so"), source],
                              capture_output=True, check=False).returncode == 0


DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "binding": False,
    "annotation_typing": False,     # annotations are for packaging/stubs.py
    "linetrace": TRACE,
    "overflowcheck": False,
}

COMPILE = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
           # Cython's own helpers, not our code: casts between function pointer types, unused static helpers.
           "-Wno-cast-function-type", "-Wno-unused-function", "-Wno-unreachable-code", "-Wno-sign-compare",
           "-Wno-deprecated-declarations"]
LINK: list[str] = []
if BUILD == "release":
    # -g0: Python's own flags ask for -g, a third of the compiler's time. Profilers need no more than the symbols.
    COMPILE += ["-O3", "-g0", "-fvisibility=hidden", "-fno-plt"]
    # Code and constants in the same pages: 10 KB of memory less for each module. Other linkers do so anyway, and do not
    # know the option.
    LINK += [option for option in ("-Wl,-z,noseparate-code",) if linker_knows(option)]
else:
    # Not optimised: it is compiled for each run of all tests, which takes longer than what they do in C.
    COMPILE += ["-O0", "-U_FORTIFY_SOURCE", "-g1", "-Wno-maybe-uninitialized"]
if BUILD == "asan":
    COMPILE += ["-O1", "-fsanitize=address", "-fno-omit-frame-pointer"]
    LINK += ["-fsanitize=address"]

MACROS = [("CYTHON_FAST_THREAD_STATE", "1"), ("NSQC_DEBUG", "1" if DEBUG else "0")]
if TRACE:
    # From CPython 3.13 on, sys.monitoring would leave line coverage of compiled modules empty.
    MACROS += [("CYTHON_TRACE", "1"), ("CYTHON_USE_SYS_MONITORING", "0")]

Options.warning_errors = True
Options.fast_fail = True


def extensions() -> list[Extension]:
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("*.pyx"))]
    return [
        Extension(".".join(path.with_suffix("").parts), [str(path)], define_macros=MACROS,
                  extra_compile_args=COMPILE, extra_link_args=LINK, include_dirs=[*INCLUDE, "nsqc"])
        for path in paths
    ]


def report(stage: str, done: int, total: int) -> None:
    if "NSQC_PROGRESS" in os.environ:
        os.write(int(os.environ["NSQC_PROGRESS"]), f"{stage} {done} {total}\n".encode())


def translated() -> list[Extension]:
    """The same with C in place of Cython."""
    modules = extensions()
    count = os.cpu_count() or 1
    # Not a counter of multiprocessing: packages are built by a Python without its locks.
    reader, writer = os.pipe()
    # Forked: where a package is built, this file is no module that another process could import.
    fork = multiprocessing.get_context("fork").Process
    processes = [fork(target=translate_some, args=(modules[at::count], writer)) for at in range(count)]
    for process in processes:
        process.start()
    os.close(writer)
    numbers = itertools.count(1)
    while finished := os.read(reader, len(modules)):
        for number in itertools.islice(numbers, len(finished)):
            report("translating-to-C", number, len(modules))
    os.close(reader)
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit("Cython has refused a module")
    return translate(*modules)      # nothing is left to translate


def translate_some(modules: list[Extension], writer: int) -> None:
    """On a process of its own; writes a byte for each module."""
    for module in modules:
        translate(module)
        os.write(writer, b".")


def translate(*modules: Extension) -> list[Extension]:
    """These modules with C in place of Cython."""
    cache = os.environ.get("NSQC_TRANSLATED", "")
    try:
        return cythonize(list(modules), compiler_directives=DIRECTIVES, annotate=bool(os.environ.get("NSQC_ANNOTATE")),
                         build_dir=f"build/{BUILD}/cython", nthreads=0, cache=cache or False)
    except CompileError:
        # Cython caches the failure, an empty set of files, and would not try again.
        for entry in Path(cache).glob("*.zip") if cache else ():
            if not zipfile.ZipFile(entry).namelist():
                entry.unlink()
        raise


class ReportingBuild(build_ext):
    """Reports each module that is compiled; several are at a time."""

    def run(self) -> None:
        self._done = itertools.count(1)
        super().run()

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + SUFFIX if SUFFIX else super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        if COMPILED:
            self.copy_file(Path(COMPILED, self.get_ext_filename(ext.name)), self.get_ext_fullpath(ext.name))
            return
        super().build_extension(ext)
        report("compiling", next(self._done), len(self.extensions))


setup(
    cmdclass={"build_ext": ReportingBuild},
    # A folder for each mode: what one has compiled is not up to date for another.
    options={"build": {"build_base": f"build/{BUILD}"}, "build_ext": {"parallel": os.cpu_count()}},
    ext_modules=extensions() if COMPILED else translated(),
)
