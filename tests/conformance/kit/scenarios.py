"""Scenario files: read, and written with recorded answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.base import LINE_LENGTH, BadScenario

VERBS = ["open", "send", "read", "read_bytes", "read_http", "quiet", "count", "close",
         "half_close", "upgrade", "http", "poll", "server", "run", "rival", "file", "files",
         "write", "heard", "statsd", "fake", "ids", "wait_ms"]


def verb_of(step: dict[str, Any]) -> str:
    found = [v for v in VERBS if v in step]
    if len(found) != 1:
        raise BadScenario(f"a step needs exactly one verb: {step}")
    return found[0]


@dataclass
class ScenarioFile:
    path: Path
    doc: dict[str, Any]
    dirty: bool = False

    @property
    def area(self) -> str:
        return self.path.stem


def load(folder: Path) -> list[ScenarioFile]:
    files = []
    for path in sorted(folder.glob("*.json")):
        doc = json.loads(path.read_text())
        for scenario in doc["scenarios"]:
            for step in scenario["steps"]:
                verb_of(step)
        files.append(ScenarioFile(path, doc))
    return files


def layout(value: Any, indent: int = 0, room: int = 0, spread: int = 0) -> str:
    """JSON that breaks lines only where it must; the first levels always do."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value:
        return flat
    if spread <= 0 and indent + room + len(flat) <= LINE_LENGTH:
        return flat
    pad, spreads = " " * (indent + 2), {"scenarios": 3, "steps": 1}
    if isinstance(value, dict):
        rows = [json.dumps(k) + ": " + layout(v, indent + 2, len(k) + 5, spreads.get(k, 0))
                for k, v in value.items()]
    else:
        rows = [layout(v, indent + 2, 1, spread - 1 if spread > 1 else 0) for v in value]
    if spread <= 0 and not any(isinstance(v, (dict, list)) for v in
                               (value.values() if isinstance(value, dict) else value)):
        rows = packed(rows, LINE_LENGTH - indent - 3)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(pad + r for r in rows) + f"\n{' ' * indent}{last}"


def packed(rows: list[str], width: int) -> list[str]:
    """Join short rows into lines that are nearly full."""
    lines: list[str] = []
    for row in rows:
        if lines and len(lines[-1]) + len(row) + 2 <= width:
            lines[-1] += ", " + row
        else:
            lines.append(row)
    return lines


def save(file: ScenarioFile) -> None:
    """One step a line, so a diff shows the steps that changed."""
    file.path.write_text(rows_of(file.doc, ("scenarios", "steps")) + "\n")


def rows_of(value: dict[str, Any], lists: tuple[str, ...], pad: str = "") -> str:
    """An object, a key a line. lists: the key of its list of objects that are written alike, ..., the key of a list with
    an element a line."""
    rows = []
    for key, element in value.items():
        text = json.dumps(element, ensure_ascii=False)
        if key == lists[0] and element:
            inner = ",\n".join(rows_of(e, lists[1:], pad + "  ") if lists[1:] else
                               f"{pad}  {json.dumps(e, ensure_ascii=False)}" for e in element)
            text = f"[\n{inner}\n{pad} ]"
        rows.append(f"{pad} {json.dumps(key)}: {text}")
    return f"{pad}{{\n" + ",\n".join(rows) + f"\n{pad}}}"
