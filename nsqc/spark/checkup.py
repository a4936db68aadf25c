"""What is wrong with an environment for Spark: looked at one by one, each as one line that says what to do."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

from nsqc.spark import java

LOWEST = {"pyspark": (4, 2), "pyarrow": (18, 0)}
HIGHEST = {"pyspark": (5, 0)}
ASK_SECONDS = 30
TIMEOUT = 5.0


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    well: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok ' if self.well else 'BAD'} {self.what}: {self.text}"


def examine(nsqd: Iterable[str] = ()) -> list[Finding]:
    """Everything; nsqd: addresses that must answer."""
    found = [package(name) for name in LOWEST]
    found += [which_java(), interpreter(), loopback(), formats()]
    return found + [reachable(address) for address in nsqd]


def package(name: str) -> Finding:
    """Is it installed, in a version that will do?"""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "is not installed: pip install 'nsqc[spark]'")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < LOWEST[name] or numbers >= HIGHEST.get(name, (10**6,)):
        return Finding(name, False, f"{version} does not fit: pip install -U 'nsqc[spark]'")
    return Finding(name, True, version)


def which_java() -> Finding:
    """Is there one that Spark runs on?"""
    try:
        found = java.find()
    except java.NoJava as error:
        return Finding("java", False, str(error))
    return Finding("java", True, f"{found.version}, from {found.source}")


def interpreter() -> Finding:
    """Do Spark's workers run a Python that is this one's version and has the packages?"""
    named = os.environ.get("PYSPARK_PYTHON")
    if not named:
        return Finding("workers", True, f"run {sys.executable}, as this: session() and nsqc spark see to it; a session "
                       "made otherwise needs that as PYSPARK_PYTHON")
    path, what = shutil.which(named), "PYSPARK_PYTHON"
    advice = f"set PYSPARK_PYTHON={sys.executable}, as nsqc.spark.session() does"
    if path is None:
        return Finding("workers", False, f"{what}: {named} does not run; {advice}")
    if os.path.samefile(path, sys.executable) and os.path.dirname(path) == os.path.dirname(sys.executable):
        return Finding("workers", True, f"run {path}, as this")
    question = "import sys, pyspark, pyarrow, nsqc.spark.bodies; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([path, "-c", question], capture_output=True, text=True, timeout=ASK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("workers", False, f"{what}: {path}: {error}; {advice}")
    if asked.returncode:
        cause = (asked.stderr.strip().splitlines() or ["it fails"])[-1]
        return Finding("workers", False, f"{what}: {path}: {cause}; {advice}")
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if asked.stdout.strip() != mine:
        return Finding("workers", False, f"{what}: {path} is Python {asked.stdout.strip()}, this is {mine}; {advice}")
    return Finding("workers", True, f"run {path}")


def loopback() -> Finding:
    """Can Spark's Java and Python reach each other?"""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, \
                socket.create_connection(server.getsockname(), TIMEOUT):
            pass
    except OSError as error:
        return Finding("loopback", False, f"127.0.0.1 cannot be used: {error}")
    return Finding("loopback", True, "127.0.0.1 answers")


def formats() -> Finding:
    """Will Spark find nsq and nsq_diskqueue by their names?"""
    if any(finding.what == "pyspark" and not finding.well for finding in [package("pyspark")]):
        return Finding("formats", False, "cannot be looked for without pyspark")
    try:
        from pyspark_nsq import DefaultSource as Topics
        from pyspark_nsq_diskqueue import DefaultSource as Files
    except ImportError as error:
        return Finding("formats", False, f"{error}: install nsqc itself, or call nsqc.spark.register(spark)")
    return Finding("formats", True, f"{Topics.name()}, {Files.name()}")


def reachable(address: str) -> Finding:
    """Does an nsqd answer there?"""
    from nsqc.client import ClientError, Connection

    try:
        one = Connection(address, timeout=TIMEOUT)
    except ClientError as error:
        from nsqc.spark.jobs import handshake

        return Finding("nsqd", False, handshake.stranger(address) or handshake.with_address(address, error))
    one.close()
    return Finding("nsqd", True, f"{address} is version {one.features.get('version', 'unknown')}")


def main(nsqd: list[str]) -> int:
    """Prints what was found; the exit code: 0 where all is well."""
    found = examine(nsqd)
    for finding in found:
        print(finding)
    return 0 if all(finding.well for finding in found) else 1
