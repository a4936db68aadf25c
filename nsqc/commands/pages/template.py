"""The config file written by `nsqc config init`: every option with its default, commented out."""

from __future__ import annotations

import json
import textwrap

from nsqc.commands.pages.manpage import config_key, takes, value_range
from nsqc.options.declared import FLAGS, NO_KEY, RULE_KEYS, SERVE, Declaration, Options, OptionSet
from nsqc.options.flags import marks, plain
from nsqc.options.rule_tables import CHANNEL_FLAGS, DEFAULT, DEFAULT_LIMITS, LIMIT_FLAGS, TOPIC_FLAGS
from nsqc.options.rule_tables import DEFAULTS as TOPIC_DEFAULTS

WIDTH = 110
HEAD = """\
# Options of nsqc, as `nsqc serve --config FILE` reads them. Flags override this file.
# Commented-out values are the defaults. `nsqc config check FILE` checks a file, and `nsqc config show
# --config FILE` prints the values in effect. nsqd reads the file, too, and ignores keys marked "not in nsqd".
"""
SERVER_HEAD = """\
# Options of the {noun}, as `{command} --config FILE` reads them. Flags override this file.
# Commented-out values are the defaults. {original} reads the file, too, and ignores keys marked "not in
# {original}".
"""
NOUNS = {"nsqlookupd": "lookup server", "nsqadmin": "admin server"}
TABLES = """\
Storage of topics by name: the first table with a matching glob counts. A missing key has the value of
the option: topic_storage, log_sync, log_retain_time, log_retain_bytes, log_retain_local_bytes, log_overflow.
PUT /topic/rules overrides these tables. [not in nsqd; changes on SIGHUP]
"""


CHANNEL_TABLES = """\
Delivery of channels by TOPIC/CHANNEL: the first table with a matching glob counts. PUT /channel/rules overrides these
tables. [not in nsqd; changes on SIGHUP]
"""


def template(declaration: Declaration[OptionSet] = SERVE) -> str:
    """The whole file. A line with an option begins with # and its key, other lines with # and a blank."""
    parts = [HEAD if declaration.has_tables else SERVER_HEAD.format(
        noun=NOUNS[declaration.original], command=declaration.command, original=declaration.original)]
    for group, names in declaration.by_group().items():
        entries = [entry(name, declaration) for name in names if name not in NO_KEY]
        if entries:
            parts.append(f"\n# ---- {group}\n\n" + "\n".join(entries))
    if declaration.has_tables:
        parts.append(f"\n# ---- Topics\n\n{tables()}")
        parts.append(f"\n# ---- Channels\n\n{channel_tables()}")
    return "".join(parts)


def tables() -> str:
    """The tables with rules for some topics, which must follow all other keys."""
    lines = textwrap.wrap(TABLES, WIDTH, initial_indent="# ", subsequent_indent="# ")
    lines += ["#", '# [topics."orders.*"]']
    for key, name in RULE_KEYS.items():
        value = json.dumps(plain(FLAGS[name].kind, Options().value(name)))
        lines.append(f"# {key} = {value}")
    for key, declared in TOPIC_FLAGS.items():
        value = json.dumps(plain(declared.kind, TOPIC_DEFAULTS[key]))
        lines += textwrap.wrap(f"{key} = {value}  # {declared.help}", WIDTH, initial_indent="# ",
                               subsequent_indent="# #     ")
    for key in (key for key in LIMIT_FLAGS if key not in RULE_KEYS):
        value = json.dumps(plain(LIMIT_FLAGS[key].kind, getattr(DEFAULT_LIMITS, key)))
        lines.append(f"# {key} = {value}")
    return "\n".join(lines) + "\n"


def channel_tables() -> str:
    """The tables with rules for some channels."""
    lines = textwrap.wrap(CHANNEL_TABLES, WIDTH, initial_indent="# ", subsequent_indent="# ")
    lines += ["#", '# [channels."orders.*/billing"]']
    for key, declared in CHANNEL_FLAGS.items():
        value = json.dumps(plain(declared.kind, getattr(DEFAULT, key)))
        lines += textwrap.wrap(f"{key} = {value}  # {declared.help}", WIDTH, initial_indent="# ",
                               subsequent_indent="# #     ")
    return "\n".join(lines) + "\n"


# Better values where nsqd's default is weak, and why.
SUGGESTED = {"tls_min_version": ("tls1.2", "the default, which is nsqd's, allows broken versions of TLS")}


def entry(name: str, declaration: Declaration[OptionSet]) -> str:
    """An option's help, the line that sets it, and a better value if there is one."""
    declared = declaration.flags[name]
    # Booleans, numbers, text and lists of JSON are TOML as well.
    value = json.dumps(plain(declared.kind, declaration.options().value(name)), ensure_ascii=False)
    notes = "; ".join(filter(None, (takes(name, declaration), value_range(name, declaration),
                                    *marks(declared, declaration))))
    meaning = textwrap.wrap(f"{declared.help} [{notes}]", WIDTH, initial_indent="# ", subsequent_indent="# ")
    lines = [*meaning, f"#{config_key(name, declaration)} = {value}"]
    if name in SUGGESTED:
        suggested, reason = SUGGESTED[name]
        lines.append(f"# Suggested: {config_key(name, declaration)} = {json.dumps(suggested)}; {reason}.")
    return "\n".join([*lines, ""])
