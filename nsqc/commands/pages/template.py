"""The config file that `nsqc config init` writes: every option with its default, commented out."""

from __future__ import annotations

import json
import textwrap

from nsqc.commands.pages.facts import config_key, takes, value_range
from nsqc.options.declared import FLAGS, NO_KEY, Options
from nsqc.options.flags import by_group, marks, plain

WIDTH = 110
HEAD = """\
# Options of nsqc, as `nsqc serve --config FILE` reads them. Flags win over this file.
# What is commented out is the default. `nsqc config check FILE` tells what is wrong with a file, `nsqc config show
# --config FILE` what comes of it. nsqd reads the file as well; it passes over what is marked "not in nsqd".
"""


def template() -> str:
    """The whole file. Lines with an option begin with # and its key, others with # and a blank."""
    parts = [HEAD]
    for group, names in by_group().items():
        entries = [entry(name) for name in names if name not in NO_KEY]
        if entries:
            parts.append(f"\n# ---- {group}\n\n" + "\n".join(entries))
    return "".join(parts)


def entry(name: str) -> str:
    """What an option means, and the line that sets it."""
    known = FLAGS[name]
    # JSON's booleans, numbers, text and lists are TOML as well.
    value = json.dumps(plain(known.kind, getattr(Options(), name)), ensure_ascii=False)
    notes = "; ".join(filter(None, (takes(name), value_range(name), *marks(known))))
    told = textwrap.wrap(f"{known.help} [{notes}]", WIDTH, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([*told, f"#{config_key(name)} = {value}", ""])
