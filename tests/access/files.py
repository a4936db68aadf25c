"""Access files with users, for tests."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from nsqc.access.rules import make

EVERYTHING = {grant: ["*"] for grant in ("publish", "consume", "read", "stats", "admin")}


class AccessFile:
    """A file with users, for each of whom it makes a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: dict[str, str] = {}
        self.hashes: dict[str, str] = {}
        self.users: dict[str, dict] = {}
        self.head = ""

    def user(self, name: str, token: bool = True, **keys) -> str:
        """Adds or changes a user; returns its token."""
        if token and name not in self.tokens:
            self.tokens[name], stored = make()
            self.hashes[name] = str(stored)
        self.users[name] = {**({"tokens": [self.hashes[name]]} if token else {}), **keys}
        return self.tokens.get(name, "")

    def write(self) -> AccessFile:
        """Replaces the file atomically, as editors and configuration management do."""
        lines = [self.head]
        for name, keys in self.users.items():
            lines.append(f"[users.{name}]")
            lines += [f"{key} = {str(value) if isinstance(value, int) else toml(value)}" for key, value in keys.items()]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.chmod(0o600)
        os.replace(new, self.path)
        return self

    @property
    def flag(self) -> str:
        """Flags for a daemon."""
        return f"--access-file={self.path}"

    def bearer(self, name: str) -> str:
        """The Authorization header of a user; empty for none."""
        return f"Authorization: Bearer {self.tokens[name]}\r\n" if name else ""

    def basic(self, name: str) -> str:
        """The same, in the form that curl -u sends."""
        return f"Authorization: Basic {base64.b64encode(f'{name}:{self.tokens[name]}'.encode()).decode()}\r\n"


def toml(value) -> str:
    """A list of texts."""
    return "[" + ", ".join(f'"{item}"' for item in value) + "]"
