"""Code blocks of the README and of docs/, for tests that run them literally."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str = "", heading: str = "") -> list[str]:
    """The fenced blocks of `page` (a path below the root) in `language`; with `heading` only those under it.

    Raises LookupError if there is no such heading: a renamed section must not be skipped silently.
    """
    text = (ROOT / page).read_text()
    if heading:
        # Comments in blocks look like headings.
        plain = FENCED.sub(lambda block: "-" * len(block[0]), text)
        start = re.search(rf"^(#+) {re.escape(heading)}$", plain, re.MULTILINE)
        if not start:
            raise LookupError(f"{page} has no heading {heading!r}")
        end = re.compile(rf"^#{{1,{len(start.group(1))}}} ", re.MULTILINE).search(plain, start.end())
        text = text[start.end():end.start() if end else len(text)]
    return [body for kind, body in FENCED.findall(text) if not language or kind == language]
