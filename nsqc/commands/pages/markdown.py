"""docs/options.md"""

from __future__ import annotations

from nsqc.commands.pages.facts import config_key, fixed_default, takes, value_range
from nsqc.options.declared import FLAGS, flag_name
from nsqc.options.flags import by_group, marks

HEAD = """# Options

Made by `make pages` from [declared.py](../nsqc/options/declared.py); `nsqc serve --help` and `nsqc man` have the same.

Flags have nsqd's grammar: `-name` and `--name` are the same, and a value follows after `=` or as the next word; a
boolean alone is true, and takes a value after `=` only. If a flag is repeated the last one counts, but lists grow.
Durations are written like `250ms`, `1.5s` or `1h30m`.

`--config` names a TOML file with the keys below; flags win over it. In it a list is a TOML list, and a duration that is
a plain number is milliseconds. `nsqc config init` writes such a file with every option, `nsqc config check` checks one,
and `nsqc config show` prints the values that take effect. Behind the keys there may be tables with rules for some
topics: see [operations.md](operations.md#topic-rules).
"""


def options_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group, names in by_group().items():
        rows = ["| flag | config key | value | default | range | meaning |", "|---|---|---|---|---|---|"]
        parts.append("\n".join([f"## {group}", "", *rows, *map(row, names), ""]))
    return "\n".join(parts)


def row(name: str) -> str:
    """One option as a row of the table."""
    notes = "".join(f"; *{mark}*" for mark in marks(FLAGS[name]))
    cells = (code(flag_name(name)), code(config_key(name)), takes(name), code(fixed_default(name)), value_range(name),
             FLAGS[name].help + notes)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Text in a code font."""
    return f"`{text}`" if text else ""
