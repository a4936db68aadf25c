"""The tables of options in docs/spark.md: python -m nsqc.spark.option_tables prints them."""

from __future__ import annotations

from dataclasses import MISSING

from nsqc.spark.options import (
    Declared,
    DiskQueue,
    Log,
    LogStream,
    LogTable,
    NodeOptions,
    NsqdOptions,
    Sink,
    Stream,
    declared,
)

TABLES: tuple[tuple[str, type[NodeOptions | DiskQueue]], ...] = (
    ("all of format nsq", NodeOptions), ("sink, and stream of a channel", NsqdOptions), ("sink", Sink),
    ("stream of a channel", Stream), ("log", Log), ("log as a table", LogTable), ("log as a stream", LogStream),
    ("disk queue", DiskQueue))


def tables() -> list[str]:
    """The tables in Markdown. Each omits its base class's options."""
    return [table(title, [item for key, item in declared(kind).items() if key not in inherited(kind)])
            for title, kind in TABLES]


def inherited(kind: type[NodeOptions | DiskQueue]) -> dict[str, Declared]:
    """The options of the base class."""
    base = kind.__bases__[0]
    return declared(base) if issubclass(base, NodeOptions) else {}


def table(title: str, options: list[Declared]) -> str:
    """One table."""
    rows = [f"| {title} | default | values | |", "|---|---|---|---|"]
    rows += [f"| `{item.name}` |{default(item)} | {item.option.kind.takes} | {item.option.help} |" for item in options]
    return "\n".join(rows)


def default(item: Declared) -> str:
    """The default of an option after a space; empty if it has none."""
    if item.option.default is not None:
        return f" {item.option.default}"
    if item.default is MISSING:
        return " required"
    return "" if item.default is None else f" {item.option.kind.show(item.default)}"


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
