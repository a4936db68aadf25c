"""Foreign JSON: every failure is one error, and nothing in the package decodes JSON in another way."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from nsqc.wire.outside import LONGEST_REASON, Decoder, JSONError, decode
from tests.support import nested

ROOT = Path(__file__).parent.parent.parent
# The decoders, and the only modules that may call them.
PARSERS = {"json.loads": "nsqc/wire/outside.py", "json.load": "", "json.JSONDecoder": "",
           "msgspec.json.decode": "", "msgspec.json.Decoder": "nsqc/wire/outside.py",
           "tomllib.loads": "nsqc/options/file.py", "tomllib.load": ""}


class Point(msgspec.Struct):
    x: int
    y: object = None


READERS = {"any": decode, "typed": Decoder(Point).decode, "map": Decoder(dict[str, object]).decode,
           "raw": Decoder(msgspec.Raw).decode, "object": Decoder(object).decode}
BAD = [b"", b"{", b'{"x":', b"\xff", b'{"x":"\xff"}', b"nonsense", b'{"x":1}}', b'{"x":1,}', b'"\x01"', b"'x'",
       nested.ARRAYS, nested.OBJECT, b'{"x":1,"y":' + nested.ARRAYS + b"}", b"[" * 100_000, b'{"x":' * 100_000]


@pytest.mark.parametrize("name, number", [(name, number) for name in READERS for number in range(len(BAD))
                                          # msgspec checks no string that it passes on unchanged.
                                          if (name, BAD[number]) != ("raw", b'{"x":"\xff"}')])
def test_every_failure_is_one_error_with_a_short_text(name, number):
    reader, text = READERS[name], BAD[number]
    with pytest.raises(JSONError) as raised:
        reader(text)
    reason = str(raised.value)
    assert reason.isprintable()
    assert 0 < len(reason) <= LONGEST_REASON + 3
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("text", [b"[]", b'{"x":"1"}', b'{"y":1}', b'{"x":1e400}', b"null"])
def test_another_type_is_a_failure(text):
    with pytest.raises(JSONError):
        READERS["typed"](text)


def test_a_reason_that_quotes_the_text_is_cut_and_has_no_control_characters():
    with pytest.raises(JSONError) as raised:
        Decoder(msgspec.defstruct("Strict", ["x"], forbid_unknown_fields=True)).decode(
            b'{"\\u001b[2J\\n' + b"y" * 10_000 + b'": 1}')
    reason = str(raised.value)
    assert reason.isprintable() and reason.endswith("...") and len(reason) == LONGEST_REASON + 3


def test_a_failure_of_the_callers_hook_is_not_one_of_the_text():
    def hook(pairs):
        raise LookupError(str(pairs))

    with pytest.raises(LookupError):
        decode(b'{"a": 1}', object_pairs_hook=hook)


def test_values_come_through():
    assert decode(b' {"a": [1, 2.5, null, "\xc3\xa9"]} ') == {"a": [1, 2.5, None, "é"]}
    assert READERS["typed"](b'{"x": 1, "unknown": {}}') == Point(1)


def calls_in(path: Path) -> set[str]:
    """The names in a file, as module.attribute: also by `from module import name`."""
    if path.suffix == ".pyx":
        return set(re.findall(r"\b(?:msgspec\.)?(?:json|tomllib)\.\w+", path.read_text()))
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_nothing_else_decodes():
    files = [path for tree in ("nsqc", "pyspark_nsq", "pyspark_nsq_diskqueue") for suffix in ("py", "pyx")
             for path in (ROOT / tree).rglob(f"*.{suffix}")]
    assert len(files) > 200
    found = {(name, str(path.relative_to(ROOT))) for path in files for name in calls_in(path) & PARSERS.keys()}
    # ast.unparse shows msgspec.json.Decoder with its module: json.Decoder of another import would be noticed, too.
    assert found == {(name, path) for name, path in PARSERS.items() if path}
