"""The properties of an option as text, for the pages."""

from __future__ import annotations

from msgspec import NODEFAULT
from msgspec.structs import fields

from nsqc.options.declared import FLAGS, LARGEST, LONGEST, NO_KEY, Kind, Options, written
from nsqc.options.flags import show

FIELDS = {field.name: field for field in fields(Options)}


def config_key(name: str) -> str:
    """The key in a config file; empty: it has none."""
    return "" if name in NO_KEY else FLAGS[name].key or name


def fixed_default(name: str) -> str:
    """The default as it is written; empty if there is none, or if it depends on the machine (the help says so)."""
    default = FIELDS[name].default
    text = "" if default is NODEFAULT else show(FLAGS[name].kind, default)
    return f'"{text}"' if text != text.strip() else text


def choices(name: str) -> tuple[str, ...]:
    """All values, if there are few; a boolean's are not listed."""
    declared = FLAGS[name]
    return declared.choices or (tuple(declared.kind.value.split("|")) if "|" in declared.kind.value else ())


def takes(name: str) -> str:
    """The value's type, or its choices."""
    return "|".join(choices(name)) or FLAGS[name].kind.value


def value_range(name: str) -> str:
    """Lowest and highest value; empty: any value."""
    declared = FLAGS[name]
    # A hundred years, or what 64 bits hold, is not a limit in practice.
    most = None if declared.most == (LONGEST if declared.kind is Kind.DURATION else LARGEST) else declared.most
    if declared.least is not None and most is not None:
        return f"{written(declared, declared.least)} to {written(declared, most)}"
    if declared.least is not None:
        return f"at least {written(declared, declared.least)}"
    return f"at most {written(declared, most)}" if most is not None else ""
