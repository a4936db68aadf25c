"""docs/options.md, and the tables of docs/lookupd.md, docs/admin.md, docs/metrics.md and docs/delivery.md"""

from __future__ import annotations

from nsqc.broker.refusals import REASONS
from nsqc.commands.pages.facts import config_key, fixed_default, takes, value_range
from nsqc.metrics.declared import EVERY, Metric, Type
from nsqc.options.admin import ADMIN
from nsqc.options.channel_keys import CHANNEL_FLAGS, DEFAULT
from nsqc.options.declared import SERVE, Declaration, OptionSet, flag_name
from nsqc.options.flags import marks, show
from nsqc.options.lookupd import LOOKUPD

METRICS_TITLE = "## All metrics\n"
REASONS_TITLE = "## Reasons of refused publishes\n"
OPTIONS_TITLE = "## Options\n"
RULES_TITLE = "## Keys\n"
HEAD = """# Options

Made by `make pages` from [declared.py](../nsqc/options/declared.py); `nsqc serve --help` and `nsqc man` have the same.

Flags have nsqd's grammar: `-name` and `--name` are the same, and a value follows after `=` or as the next word; a
boolean alone is true, and takes a value after `=` only. If a flag is repeated the last one counts, but lists grow.
Durations are written like `250ms`, `1h30m` or `7d`.

Each option can be set in the environment, too: `NSQC_` and the flag's name in capitals, with `_` for `-`.
`NSQC_MEM_QUEUE_SIZE=1000` is `--mem-queue-size=1000`; commas separate the items of a list. Flags win over variables,
and these over the config file. A variable with an unknown name stops the start, so that no option is lost to a typo;
`NSQC_VERSION`, and what Kubernetes sets for a service named `nsqc`, are ignored. `nsqc lookupd` has variables as well.

`--config` names a TOML file with the keys below; flags and variables win over it. In it a list is a TOML list, and a
duration that is a plain number is milliseconds. `nsqc config init` writes such a file with every option, `nsqc config
check` checks one, and `nsqc config show` prints the values that take effect. After the keys there may be tables with
rules for some topics and channels: see [operations.md](operations.md#topic-rules) and [delivery.md](delivery.md).
"""


def options_page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *tables(SERVE, "##")])


def with_lookupd_options(page: str) -> str:
    """docs/lookupd.md, whose last section has the options, with that section made again."""
    return with_options(page, LOOKUPD)


def with_admin_options(page: str) -> str:
    """docs/admin.md, likewise."""
    return with_options(page, ADMIN)


def with_options(page: str, declaration: Declaration[OptionSet]) -> str:
    """A page whose last section has the options of a program, with that section made again."""
    before, title, _ = page.partition(OPTIONS_TITLE)
    return "\n".join([before + title, *tables(declaration, "###")])


def with_metrics(page: str) -> str:
    """docs/metrics.md, with its table of reasons and its last section, which has all metrics, made again."""
    before, title, rest = page.partition(REASONS_TITLE)
    introduction = rest.partition(METRICS_TITLE)[2].partition("\n### ")[0].rstrip()
    reasons = ["| reason | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in REASONS.items())]
    groups: dict[str, list[Metric]] = {}
    for metric in EVERY:
        groups.setdefault(metric.group, []).append(metric)
    parts = [before + title, *reasons, "", METRICS_TITLE + introduction + "\n"]
    for group, metrics in groups.items():
        parts += [f"### {group}", "", "| metric | type | labels | meaning |", "|---|---|---|---|",
                  *map(metric_row, metrics), ""]
    return "\n".join(parts)


def with_rules(page: str) -> str:
    """docs/delivery.md, with its last section, which has all keys of channels' rules, made again."""
    before, title, _ = page.partition(RULES_TITLE)
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, declared in CHANNEL_FLAGS.items():
        default = show(declared.kind, getattr(DEFAULT, key))
        kind = declared.kind.value.replace("|", "\\|")
        rows.append(f"| `{key}` | {kind} | `{default}` | {declared.help} |")
    return "\n".join([before + title.rstrip("\n"), "", *rows, ""])


def metric_row(metric: Metric) -> str:
    """One metric as a row of the table."""
    kind = "gauge" if metric.type is Type.INFO else metric.type.value
    text = metric.help.replace("|", "\\|")
    return f"| `{metric.sample}` | {kind} | {', '.join(metric.labels)} | {text} |"


def tables(declaration: Declaration[OptionSet], level: str) -> list[str]:
    """A table for each group of options, under a heading of the level."""
    head = ["| flag | config key | value | default | range | meaning |", "|---|---|---|---|---|---|"]
    return ["\n".join([f"{level} {group}", "", *head, *(row(name, declaration) for name in names), ""])
            for group, names in declaration.by_group().items()]


def row(name: str, declaration: Declaration[OptionSet]) -> str:
    """One option as a row of the table."""
    declared = declaration.flags[name]
    notes = "".join(f"; *{mark}*" for mark in marks(declared, declaration))
    cells = (code(flag_name(name)), code(config_key(name, declaration)), takes(name, declaration),
             code(fixed_default(name, declaration)), value_range(name, declaration), declared.help + notes)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Text in a code font."""
    return f"`{text}`" if text else ""
