"""Checks an environment for Spark: one line per check, with a remedy if it fails."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import NamedTuple

from nsqc.spark import java, sessions

LOWEST = {"pyspark": (4, 2), "pyarrow": (18, 0)}
HIGHEST = {"pyspark": (5, 0)}
TIMEOUT = 5.0
# Spark finds a format by importing every top-level package that begins with pyspark_.
FORMAT_PACKAGES = ("pyspark_nsq", "pyspark_nsq_diskqueue")


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    well: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok ' if self.well else 'BAD'} {self.what}: {self.text}"


def examine(nsqd: Iterable[str] = ()) -> list[Finding]:
    """Runs all checks; nsqd: addresses that must answer."""
    findings = [package(name) for name in LOWEST]
    findings += [which_java(), interpreter(), loopback(), formats()]
    return findings + [reachable(address) for address in nsqd]


def package(name: str) -> Finding:
    """Is it installed, in a supported version?"""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed: pip install 'nsqc[spark]'")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < LOWEST[name] or numbers >= HIGHEST.get(name, (10**6,)):
        return Finding(name, False, f"{version} is not supported: pip install -U 'nsqc[spark]'")
    return Finding(name, True, version)


def which_java() -> Finding:
    """Is there a Java that Spark runs on?"""
    try:
        chosen = java.find()
    except java.NoJava as error:
        return Finding("java", False, str(error))
    return Finding("java", True, f"{chosen.version}, from {chosen.source}")


def interpreter() -> Finding:
    """Do Spark's workers run a Python of this version that finds the packages? Starts one as Spark does."""
    named = os.environ.get("PYSPARK_PYTHON")
    path = shutil.which(named) if named else sys.executable
    advice = f"set PYSPARK_PYTHON={sys.executable}, as nsqc.spark.session() does"
    if path is None:
        return Finding("workers", False, f"PYSPARK_PYTHON: cannot run {named}; {advice}")
    if (why := sessions.missing(path)) is not None:
        return Finding("workers", False, f"{'PYSPARK_PYTHON: ' if named else ''}{path}: {why}; "
                       + (advice if named else f"their working folder would be {os.getcwd()}"))
    if not named:
        return Finding("workers", True, f"run {path}, like this process: session() and nsqc spark set it; others "
                       "need it as PYSPARK_PYTHON")
    return Finding("workers", True, f"run {path}")


def loopback() -> Finding:
    """Can Spark's Java and Python reach each other?"""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, \
                socket.create_connection(server.getsockname(), TIMEOUT):
            pass
    except OSError as error:
        return Finding("loopback", False, f"127.0.0.1 is not usable: {error}")
    return Finding("loopback", True, "127.0.0.1 answers")


def formats() -> Finding:
    """Will Spark find nsq and nsq_diskqueue by name?"""
    if not package("pyspark").well:
        return Finding("formats", False, "cannot be checked without pyspark")
    missing = next((name for name in FORMAT_PACKAGES if find_spec(name) is None), None)
    if missing:
        return Finding("formats", False,
                       f"No module named {missing!r}: install nsqc itself, or call nsqc.spark.register(spark)")
    try:
        from nsqc.spark.queue_files import DiskQueueSource
        from nsqc.spark.source import NsqSource
    except ImportError as error:
        return Finding("formats", False, f"{error}: pip install 'nsqc[spark]'")
    return Finding("formats", True, f"{NsqSource.name()}, {DiskQueueSource.name()}")


def reachable(address: str) -> Finding:
    """Does an nsqd answer there?"""
    from nsqc.client import ClientError, Connection

    try:
        connection = Connection(address, timeout=TIMEOUT)
    except ClientError as error:
        from nsqc.spark.jobs import handshake

        return Finding("nsqd", False, handshake.other_server(address) or handshake.with_address(address, error))
    connection.close()
    return Finding("nsqd", True, f"{address} is version {connection.features.get('version', 'unknown')}")


def main(nsqd: list[str]) -> int:
    """Prints all findings; returns the exit code: 0 if all are well."""
    findings = examine(nsqd)
    for finding in findings:
        print(finding)
    return 0 if all(finding.well for finding in findings) else 1
