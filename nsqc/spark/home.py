"""A SPARK_HOME whose workers start in half the time. Imports no Spark."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

ARCHIVE = Path("python", "lib", "pyspark.zip")


def installed() -> Path | None:
    """The folder of the installed pyspark, if it is a complete Spark; otherwise None."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    return folder if folder is not None and (folder / ARCHIVE).exists() else None


def linked(cache: Path | None = None) -> Path | None:
    """A folder of links to the installed Spark, in the user's cache folder, without the archive of pyspark. Workers
    import pyspark from the archive if it exists; it has no byte code, so each compiles it again, for half a second.
    None: Spark is not installed as a package, or the folder cannot be created."""
    spark = installed()
    if spark is None:
        return None
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsqc"
    # Hash of the path and its time: another Spark, or the same path after an upgrade, gets another folder.
    mark = hashlib.sha256(f"{spark}:{(spark / ARCHIVE).stat().st_mtime_ns}".encode()).hexdigest()[:12]
    home = folder / f"spark-{mark}"
    if home.exists():
        return home
    fresh = home.with_name(f"{home.name}.{os.getpid()}.tmp")
    try:
        (fresh / ARCHIVE).parent.mkdir(parents=True)
        for path in spark.iterdir():
            if path.name != "python":
                (fresh / path.name).symlink_to(path)
        with suppress(FileExistsError):     # of another process
            fresh.rename(home)
    except OSError:
        pass
    shutil.rmtree(fresh, ignore_errors=True)
    return home if home.exists() else None
