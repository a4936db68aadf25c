"""Any stands in a type only with a reason beside it; mypy checks in `make lint` that the types are right."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "nsqc").rglob("*") if path.suffix in (".py", ".pyi"))
REASON = re.compile(r"#.*\bAny: \w")


def without_reason(source: str) -> Iterator[int]:
    """Lines that use Any and have no `# Any: reason`, on the line or the one above; imports of Any need none."""
    imports = {line for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))
               for line in range(node.lineno, node.end_lineno + 1)}
    lines = ["", *source.splitlines()]
    # Tokens, because texts and comments may say Any; annotations in quotes are texts, too, and `from __future__` spares them.
    names = {token.start[0] for token in tokenize.generate_tokens(io.StringIO(source).readline)
             if token.type == tokenize.NAME and token.string == "Any"}
    for number in sorted(names - imports):
        if not any(REASON.search(line) for line in lines[number - 1:number + 1]):
            yield number


def test_any_has_a_reason():
    assert len(FILES) > 200
    assert [f"{path.relative_to(ROOT)}:{number}" for path in FILES for number in without_reason(path.read_text())] == []


def test_what_counts_as_a_reason():
    source = ('from typing import Any\n"""Any text."""\n# Any: a reason\ndef f(a: Any) -> Any: ...\n'
              "def g(a: Any): ...  # Any: another\n# Any\ndef h(a: Any,\n      b: int): ...\nx: Any = 1  # Any:\n")
    assert list(without_reason(source)) == [7, 9]
