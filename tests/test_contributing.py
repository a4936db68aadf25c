"""CONTRIBUTING.md's lists of places are complete: each has an example, which is in no other file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (".py", ".pyx", ".pxd", ".pyi", ".js")
SECTIONS = re.findall(r"^### (.*?)\n\n<!-- example: (\S+) -->\n(.*?)(?=^### |\Z)", (ROOT / "CONTRIBUTING.md").read_text(),
                      re.MULTILINE | re.DOTALL)


def test_each_has_an_example():
    assert len(SECTIONS) == (ROOT / "CONTRIBUTING.md").read_text().count("\n### ") == 5


@pytest.mark.parametrize(("example", "text"), [(example, text) for _, example, text in SECTIONS],
                         ids=[title for title, _, _ in SECTIONS])
def test_the_places_are_all_there_are(example, text):
    listed = {path for path in re.findall(r"`(nsqc/[\w./]+)`", text) if "NAME" not in path}
    assert [path for path in listed if not (ROOT / path).exists()] == []
    word = re.compile(rf"(?<![\w.]){re.escape(example)}(?![\w.]*\w)" if "." in example else rf"(?<!\.)\b{example}\b")
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "nsqc").rglob("*")
             if path.suffix in SOURCES and word.search(path.read_text())}
    assert [path for path in sorted(found) if not any(path == one or (one.endswith("/") and path.startswith(one)) for one in listed)] == []
