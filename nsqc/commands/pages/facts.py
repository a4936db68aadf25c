"""What the pages tell of an option, as text."""

from __future__ import annotations

from msgspec import NODEFAULT
from msgspec.structs import fields

from nsqc.options.declared import FLAGS, LARGEST, LONGEST, NO_KEY, Kind, Options, figure
from nsqc.options.flags import show

FIELDS = {field.name: field for field in fields(Options)}


def config_key(name: str) -> str:
    """The key in a config file; empty: there is none."""
    return "" if name in NO_KEY else FLAGS[name].key or name


def fixed_default(name: str) -> str:
    """The default as one writes it; empty where there is none, or where it is the machine's (the help says so)."""
    default = FIELDS[name].default
    text = "" if default is NODEFAULT else show(FLAGS[name].kind, default)
    return f'"{text}"' if text != text.strip() else text


def choices(name: str) -> tuple[str, ...]:
    """All values, where there are few; a boolean's are not listed."""
    known = FLAGS[name]
    return known.choices or (tuple(known.kind.value.split("|")) if "|" in known.kind.value else ())


def takes(name: str) -> str:
    """What is written behind the flag."""
    return "|".join(choices(name)) or FLAGS[name].kind.value


def value_range(name: str) -> str:
    """Least and most; empty: any value."""
    known = FLAGS[name]
    # A hundred years, or what 64 bits hold, is no limit that anybody meets.
    most = None if known.most == (LONGEST if known.kind is Kind.DURATION else LARGEST) else known.most
    if known.least is not None and most is not None:
        return f"{figure(known, known.least)} to {figure(known, most)}"
    if known.least is not None:
        return f"at least {figure(known, known.least)}"
    return f"at most {figure(known, most)}" if most is not None else ""
