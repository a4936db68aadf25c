"""Parses the text of options: Spark passes all values as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from nsqc import paths
from nsqc.client.address import split_address
from nsqc.wire.nodehosts import NodeHosts
from nsqc.wire.outside import JSONError, decode
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:

    pass

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
SUFFIXES = {"k": KIB, "kb": KIB, "kib": KIB, "m": MIB, "mb": MIB, "mib": MIB, "g": GIB, "gb": GIB, "gib": GIB}
T = TypeVar("T")
# `earliest`, `latest`, or offsets by topic and node (HOST:PORT of TCP), where -2 and -1 mean the same.
Places: TypeAlias = str | dict[str, dict[str, int]]
# Milliseconds since 1970, by topic, or by topic and node.
Times: TypeAlias = dict[str, int | dict[str, int]]
# Nodes by topic.
Assignment: TypeAlias = dict[str, list[str]]
LATEST_MS = 2**53
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Kind(Generic[T]):
    """An option's values (for the table in docs/spark.md), its parser (raises ValueError), and the text form of a
    value."""

    takes: str
    read: Callable[[str], T]
    show: Callable[[T], str] = str


def read_text(value: str) -> str:
    """Any text but an empty one."""
    if not value:
        raise ValueError("must not be empty")
    return value


def read_path(value: str) -> str:
    """A local path; accepts file: and ~."""
    return paths.absolute(read_text(value))


def whole(low: int, high: int) -> Kind[int]:
    """A whole number from low to high."""
    def read(value: str) -> int:
        number = int(value) if value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal() else None
        if number is None or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number
    return Kind(f"{low} to {high}", read)


def size(low: int, high: int) -> Kind[int]:
    """Bytes: 65536, 64k, 64KiB, 1g."""
    number = whole(low, high)

    def read(value: str) -> int:
        digits = value.rstrip("kKmMgGiIbB")
        unit = value[len(digits):].lower()
        if unit and unit not in SUFFIXES:
            raise ValueError("must be bytes, such as 65536, 64KiB or 1GiB")
        return number.read(str(int(digits) * SUFFIXES.get(unit, 1)) if digits.isdecimal() else value)
    return Kind(f"{show_size(low)} to {show_size(high)}", read, show_size)


def show_size(size: int) -> str:
    """Bytes in the largest unit that divides them."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} byte{'s' if size != 1 else ''}"


def seconds(low: float, high: float) -> Kind[float]:
    """Seconds, fractions allowed; 500ms, 10s and 15m as well."""
    def read(value: str) -> float:
        scale = 0.001 if value.endswith("ms") else 60 if value.endswith("m") else 1
        try:
            number = float(value.removesuffix("ms").removesuffix("s").removesuffix("m")) * scale
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"must be seconds from {low} to {high}")
        return number
    return Kind(f"{low:g} to {high:.0f} s", read, lambda value: f"{value:g}")


def one_of(*words: str) -> Kind[str]:
    """One of a few words."""
    def read(value: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return value.lower()
    return Kind(", ".join(f"`{word}`" for word in words), read, lambda value: f"`{value}`")


def read_flag(value: str) -> bool:
    """true or false."""
    return BOOLEAN.read(value) == "true"


def read_name(value: str) -> str:
    """A topic or channel name."""
    if not is_valid_name(value.encode()):
        raise ValueError("a name is 1 to 64 of . a-z A-Z 0-9 _ -, and #ephemeral may follow")
    return value


def read_addresses(value: str) -> tuple[str, ...]:
    """HOST:PORT, or several separated by commas."""
    addresses = tuple(part.strip() for part in value.split(","))
    for address in addresses:
        split_address(address)
    if len(set(addresses)) < len(addresses):
        raise ValueError("an address is given twice")
    return addresses


def read_node(value: str) -> str:
    """HOST:PORT, or a node's name in a bucket, which has no colon."""
    if ":" in value or not value:
        split_address(value)
    return value


def read_bucket(value: str) -> str:
    """The URI of a bucket."""
    from nsqc.bucket.store import BucketError, open_bucket

    try:
        open_bucket(read_text(value))
    except BucketError as error:
        raise ValueError(str(error)) from None
    return value


def read_names(value: str) -> tuple[str, ...]:
    """A topic name, or several separated by commas."""
    names = tuple(read_name(part.strip()) for part in value.split(","))
    if len(set(names)) < len(names):
        raise ValueError("a name is given twice")
    return names


def read_pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return read_text(value)


def read_places(value: str) -> Places:
    """earliest, latest, or JSON such as {"topic": {"host:4150": 23}}."""
    if value.lower() in (EARLIEST, LATEST):
        return value.lower()
    places = read_json(value)
    if not isinstance(places, dict) or not places:
        raise ValueError('must be earliest, latest, or JSON by topic and node, such as {"topic": {"host:4150": 23}}')
    for topic, nodes in places.items():
        read_name(topic)
        if not isinstance(nodes, dict) or not nodes:
            raise ValueError(f'topic {topic} needs offsets by node, such as {{"host:4150": 23}}')
        for node, offset in nodes.items():
            read_node(node)
            if type(offset) is not int or not -2 <= offset < 2**63:
                raise ValueError(f"topic {topic}, node {node}: {json.dumps(offset)} is not an offset: a whole number, "
                                 "-1 for latest, -2 for earliest")
    return places


def read_times(value: str) -> Times:
    """JSON such as {"topic": 1750000000000} or {"topic": {"host:4150": 1750000000000}}."""
    times = read_json(value)
    if not isinstance(times, dict) or not times:
        raise ValueError('must be JSON by topic, such as {"topic": 1750000000000}, or by topic and node')
    for topic, time in times.items():
        read_name(topic)
        if isinstance(time, dict) and not time:
            raise ValueError(f"topic {topic} needs a time, or times by node")
        for node, ms in time.items() if isinstance(time, dict) else ((None, time),):
            if node is not None:
                read_node(node)
            if type(ms) is not int or not 0 <= ms <= LATEST_MS:
                where = f"topic {topic}" + (f", node {node}" if node else "")
                raise ValueError(f"{where}: {json.dumps(ms)} is not a time in milliseconds since 1970")
    return times


def read_assignment(value: str) -> Assignment:
    """JSON such as {"topic": ["host:4150"]}."""
    assigned = read_json(value)
    if not isinstance(assigned, dict) or not assigned:
        raise ValueError('must be JSON by topic, such as {"topic": ["host:4150"]}')
    for topic, nodes in assigned.items():
        read_name(topic)
        if not isinstance(nodes, list) or not nodes or not all(isinstance(node, str) for node in nodes):
            raise ValueError(f'topic {topic} needs a list of nodes, such as ["host:4150"]')
        for node in nodes:
            read_node(node)
        if len(set(nodes)) < len(nodes):
            raise ValueError(f"topic {topic}: a node is given twice")
    return assigned


# Any: JSON
def read_json(value: str) -> Any:
    """JSON; None if it is not. Raises ValueError for a duplicate key."""
    try:
        return decode(value, object_pairs_hook=_once)
    except _GivenTwice as error:
        raise ValueError(f"contains {json.dumps(str(error))} twice") from None
    except JSONError:
        return None


class _GivenTwice(Exception):
    """A key of a JSON object."""


# Any: JSON
def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. json would silently take the last of equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _GivenTwice(next(key for key in keys if keys.count(key) > 1))
    return found


def read_hosts(value: str) -> str:
    """Hosts, networks and globs, separated by commas."""
    NodeHosts([value])
    return read_text(value)


BOOLEAN = one_of("true", "false")
TEXT = Kind("text", read_text)
FILE = Kind("absolute path", read_path)
FLAG = Kind(BOOLEAN.takes, read_flag, lambda value: "`true`" if value else "`false`")
NAME = Kind("name", read_name)
NAMES = Kind("name, ...", read_names, ", ".join)
PATTERN = Kind("regular expression", read_pattern)
HOSTS = Kind("hosts, ...", read_hosts, str)
PLACES: Kind[Places] = Kind("`earliest`, `latest`, JSON", read_places, str)
TIMES: Kind[Times] = Kind("JSON", read_times)
ASSIGNMENT: Kind[Assignment] = Kind("JSON", read_assignment)
BUCKET = Kind("URI", read_bucket)
ADDRESSES = Kind("`HOST:PORT`, ...", read_addresses, ", ".join)
