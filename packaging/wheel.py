"""sdist and wheel in dist/: the wheel for the glibc of packaging/compiler.py, which auditwheel checks and names.

    python packaging/wheel.py [--python build/portable/venv/bin/python]

The wheel is built from the sdist, which so proves to be whole. What is in it is left in build/wheel/content, too.
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
    """A step, which is silent where it succeeds."""
    done = subprocess.run(words, cwd=ROOT, env={**environment(), **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nno wheel: {' '.join(map(str, words))} failed")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python the wheel is for")
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    DIST.mkdir(exist_ok=True)
    for old in (*DIST.glob("nsqc-*.tar.gz"), *DIST.glob("nsqc-*.whl")):
        old.unlink()
    # Debug symbols would be four fifths of it. What has been translated from the same sources is not translated again.
    run(arguments.python, "-m", "build", "--no-isolation", "--outdir", WORK, ".",
        LDSHARED=f"{environment()['CC']} -shared -Wl,-s", NSQC_TRANSLATED=str(ROOT / "build" / "translated"))
    plain, = WORK.glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir", DIST, plain,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    wheel, = DIST.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(WORK / "content")
    for sdist in WORK.glob("*.tar.gz"):
        shutil.move(sdist, DIST)


if __name__ == "__main__":
    main()
