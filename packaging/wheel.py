"""Builds sdist and wheel in dist/: the wheel for the glibc of packaging/compiler.py, which auditwheel checks and names.

    python packaging/wheel.py [--python build/portable/venv/bin/python]
    python packaging/wheel.py --compiled        with the modules compiled in place: for tests, on this machine

The wheel is built from the sdist, which proves that to be complete. Its contents are also left in build/wheel/content.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from compiler import PLATFORM, environment

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheel"


def run(*words: str | Path, **variables: str) -> None:
    """Runs a step, silently on success."""
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nno wheel: {' '.join(map(str, words))} failed")


def for_old_systems(python: str) -> None:
    """The sdist in WORK and the wheel in DIST, compiled for older systems."""
    tools = environment()
    # Debug symbols would be 80 % of it. Sources that were already translated are not translated again.
    run(python, "-m", "build", "--no-isolation", "--outdir", WORK, ".",
        **{**tools, "LDSHARED": f"{tools['CC']} -shared -Wl,-s", "NSQC_TRANSLATED": str(ROOT / "build" / "translated")})
    plain, = WORK.glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir", DIST, plain,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def for_this_machine() -> None:
    """The same with the modules compiled in place."""
    stripped = WORK / "stripped"
    for module in (ROOT / "nsqc").rglob("*.so"):
        copy = stripped / module.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        run("strip", "-o", copy, module)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", WORK, ".", NSQC_COMPILED=str(stripped))
    plain, = WORK.glob("*.whl")
    shutil.copy(plain, DIST)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python the wheel is for")
    parser.add_argument("--compiled", action="store_true", help="takes the modules that are compiled in place")
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    DIST.mkdir(exist_ok=True)
    for old in (*DIST.glob("nsqc-*.tar.gz"), *DIST.glob("nsqc-*.whl"), *DIST.glob(".wheel*")):
        old.unlink()
    if arguments.compiled:
        for_this_machine()
    else:
        for_old_systems(arguments.python)
    wheel, = DIST.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(WORK / "content")
    for sdist in WORK.glob("*.tar.gz"):
        shutil.move(sdist, DIST)


if __name__ == "__main__":
    main()
