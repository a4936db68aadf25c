"""Code blocks of the README and of docs/, for tests that run them literally."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def blocks(page: str, language: str = "", heading: str = "") -> list[str]:
    """The fenced blocks of `page` (a path below the root) in `language`; with `heading` only those under it.

    Raises LookupError if there is no such heading: a renamed section must not be skipped silently.
    """
    text = (ROOT / page).read_text()
    if heading:
        start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
        if not start:
            raise LookupError(f"{page} has no heading {heading!r}")
        text = text[start.end():]
        end = re.search(rf"^#{{1,{len(start.group(1))}}} ", text, re.MULTILINE)
        text = text[:end.start()] if end else text
    return [body for kind, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
            if not language or kind == language]
