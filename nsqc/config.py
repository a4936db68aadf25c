"""The config file: TOML with nsqd's keys. Flags win over it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nsqc.options import FLAGS, KEYS, OptionError
from nsqc.values import from_toml

NEAR = 0.8  # how alike an unknown key must be to a known one to count as a slip of the keyboard


def read_config(path: str) -> tuple[dict[str, Any], list[str]]:
    """Attribute names and values of a file, and the keys that are no options. Raises OptionError.

    As with the original, unknown keys are passed over, for files are shared between tools and releases; but one that
    looks like a misspelt option is refused. Values out of range are left to options.check.
    """
    try:
        tables = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"failed to load config file {path} - {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None
    found, unknown = {}, []
    for key, value in tables.items():
        name = KEYS.get(key)
        if name is None:
            refuse_slip(path, key, tables)
            unknown.append(key)
            continue
        try:
            found[name] = from_toml(FLAGS[name].kind, value)
        except ValueError as error:
            raise OptionError(f"config file {path}: {key} = {value!r} cannot be used - {error}") from None
    return found, unknown


def refuse_slip(path: str, key: str, given: Collection[str]) -> None:
    """Raises OptionError for a key that is nearly an option's, or a flag's name where the option's key is another.

    Not where that option is given beside it: then the file serves several tools, whose keys may be alike.
    """
    plain = key.lower().replace("-", "_")
    near = [known for known, name in KEYS.items() if plain in (known, name)]
    near = near or difflib.get_close_matches(plain, KEYS, n=1, cutoff=NEAR)
    if near and near[0] not in given:
        raise OptionError(f"config file {path}: unknown key {key!r}, did you mean {near[0]}?")
