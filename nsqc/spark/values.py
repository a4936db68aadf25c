"""How the text of an option is read: Spark hands all values over as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nsqc.client.address import split_address
from nsqc.wire.names import is_valid_name

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
SUFFIXES = {"k": KIB, "kb": KIB, "kib": KIB, "m": MIB, "mb": MIB, "mib": MIB, "g": GIB, "gb": GIB, "gib": GIB}
T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What an option takes (for the table in docs/spark.md), how its text is read (raises ValueError), and how a value
    is shown."""

    takes: str
    read: Callable[[str], T]
    show: Callable[[T], str] = str


def read_text(value: str) -> str:
    """Any text but an empty one."""
    if not value:
        raise ValueError("must not be empty")
    return value


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
    """Seconds, fractions allowed; 500ms and 10s as well."""
    def read(value: str) -> float:
        scale = 0.001 if value.endswith("ms") else 1
        try:
            number = float(value.removesuffix("ms").removesuffix("s")) * scale
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


BOOLEAN = one_of("true", "false")
TEXT = Kind("text", read_text)
FILE = Kind("path", read_text)
FLAG = Kind(BOOLEAN.takes, read_flag, lambda value: "`true`" if value else "`false`")
NAME = Kind("name", read_name)
ADDRESSES = Kind("`HOST:PORT`, ...", read_addresses, ", ".join)
