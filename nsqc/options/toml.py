"""TOML as text: every failure of the parser is a TomlError."""

from __future__ import annotations

from typing import Any


class TomlError(ValueError):
    """The text is not TOML; says why and, if the parser knows, where: `at line N`."""


# Any: TOML
def parse(text: str) -> dict[str, Any]:
    """The tables of a file. Raises TomlError."""
    import tomllib  # here, because most daemons have no config file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None
    except RecursionError:
        raise TomlError("a value is nested too deeply") from None
