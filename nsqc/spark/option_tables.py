"""The tables of options in docs/spark.md: python -m nsqc.spark.option_tables prints them."""

from __future__ import annotations

from dataclasses import MISSING

from nsqc.spark.options import Declared, DiskQueue, NsqdOptions, Sink, Stream, declared

TABLES: tuple[tuple[str, type[NsqdOptions | DiskQueue]], ...] = (
    ("sink and stream", NsqdOptions), ("sink", Sink), ("stream", Stream), ("disk queue", DiskQueue))


def tables() -> list[str]:
    """The tables in Markdown. Those of the sink and the stream leave out what both have."""
    shared = declared(NsqdOptions)
    return [table(title, [item for key, item in declared(kind).items() if kind is NsqdOptions or key not in shared
                          or kind is DiskQueue]) for title, kind in TABLES]


def table(title: str, options: list[Declared]) -> str:
    """One table."""
    rows = [f"| {title} | default | takes | |", "|---|---|---|---|"]
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
