"""The properties of an option as text, for the pages."""

from __future__ import annotations

from msgspec import NODEFAULT
from msgspec.structs import fields

from nsqc.options.declared import LARGEST, LONGEST, NO_KEY, SERVE, Declaration, OptionSet, written
from nsqc.options.flags import show
from nsqc.options.option import Kind


def config_key(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The config file key; empty: none."""
    return "" if name in NO_KEY else declaration.flags[name].key or name


def fixed_default(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The default in written form; empty if there is none, or if it depends on the machine (see the help)."""
    default = next(field.default for field in fields(declaration.options) if field.name == name)
    text = "" if default is NODEFAULT else show(declaration.flags[name].kind, default)
    return f'"{text}"' if text != text.strip() else text


def takes(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """The value's type, or its choices."""
    option = declaration.flags[name]
    return "|".join(option.values) or option.kind.value


def value_range(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """Lowest and highest value; empty: any value."""
    declared = declaration.flags[name]
    # A hundred years, or 64 bits, is not a limit in practice.
    most = None if declared.most == (LONGEST if declared.kind is Kind.DURATION else LARGEST) else declared.most
    if declared.least is not None and most is not None:
        return f"{written(declared, declared.least)} to {written(declared, most)}"
    if declared.least is not None:
        return f"at least {written(declared, declared.least)}"
    return f"at most {written(declared, most)}" if most is not None else ""
