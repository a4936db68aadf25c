"""The arguments of log lines, derived from the formats: those of the source itself, too."""

import ast
import functools
import re
from pathlib import Path

import pytest

from nsqc.log.formats import ARGUMENT, ERROR, INFO, fields_of, kind_of, marks_of

PACKAGE = Path(__file__).parents[2] / "nsqc"
LEVELS = ("debug", "info", "warn", "error", "fatal")
CALL = re.compile(rf"\blog\.(?:{'|'.join(LEVELS)})\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)*)")
# Words that precede the value of one of these fields.
NAMED = re.compile(r"(?i)\b(topic|channel|client)\($")


@functools.cache
def formats() -> list[tuple[str, str]]:
    """The place and the format of every line that the servers log; the format is empty if it is not a literal."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py*")):
        place = str(path.relative_to(PACKAGE))
        if place.startswith(("spark/", "log/")):
            continue    # Spark's side uses Python's logging module
        if path.suffix == ".pyx":
            found += [(place, "".join(map(ast.literal_eval, re.findall(r'"(?:[^"\\]|\\.)*"', match[1]))))
                      for match in CALL.finditer(path.read_text())]
        elif path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
                        and re.search(r"\b_?log$", ast.unparse(node.func.value))):
                    literal = isinstance(node.args[0], ast.Constant)
                    found.append((place, node.args[0].value if literal else ""))
    return found


def test_the_formats_are_found():
    assert len(formats()) > 130
    assert {"tcp/connection.pyx", "daemon.py", "lookupd/connection.py", "store/log/cursor.pyx"} <= {p for p, _ in formats()}


def test_every_format_is_a_literal():
    """Client input must be an argument; repeated lines are recognised by their format."""
    assert [place for place, text in formats() if not text] == []


def test_what_is_named_is_a_field():
    for place, text in formats():
        arguments = [match for match in re.finditer(ARGUMENT, text) if match[0] != "%%"]
        names = {index: name for name, index in marks_of(text)}
        for index, match in enumerate(arguments):
            if word := NAMED.search(text[:match.start()]):
                assert names.get(index) == word[1].lower(), (place, text)


def test_formats_have_as_many_marks_as_arguments():
    for place, text in formats():
        count = len([match for match in re.findall(ARGUMENT, text) if match != "%%"])
        assert all(index < count for _, index in marks_of(text)), place
        assert text % tuple("1" if kind[-1] in "sr" else 1 for kind in re.findall(ARGUMENT, text) if kind != "%%")


@pytest.mark.parametrize("level,text,arguments,fields", [
    (INFO, "TOPIC(%s): deleting channel %s", ("t", "c"), {"topic": "t", "channel": "c"}),
    (INFO, "200%% %s", ("x",), {}),
    (INFO, "%d %s %s (%s) %s", (200, "GET", "/ping", "1.2.3.4:5", "1ms"), {"client": "1.2.3.4:5"}),
    (INFO, "DB: client(%s) REGISTER category:%s key:%s subkey:%s", ("a:1", "topic", "t", ""),
     {"client": "a:1", "topic": "t"}),
    (INFO, "DB: setting tombstone for producer@%s of topic(%s)", ("n:1", "t"), {"node": "n:1", "topic": "t"}),
    (INFO, "LOOKUPD(%s): %s %s", ("l:1", "topic", "REGISTER t"), {"peer": "l:1"}),
    (INFO, "accepted again - %s", ("x",), {}),
    (ERROR, "LOOKUPD(%s): %s - %s", ("l:1", "REGISTER t", "E_INVALID"), {"peer": "l:1", "error": "E_INVALID"}),
    (ERROR, "LOOKUPD(%s): %s", ("l:1", "timed out"), {"peer": "l:1", "error": "timed out"}),
    (ERROR, "DISKQUEUE(%s): write failed - %s", ("t:c", "No space"), {"topic": "t", "channel": "c", "error": "No space"}),
    (ERROR, "DISKQUEUE(%s): write failed - %s", ("t", "No space"), {"topic": "t", "error": "No space"}),
    (ERROR, "LOG(%s): channel %s: %d damaged messages from offset %d on are skipped", ("t", "c", 1, 2),
     {"topic": "t", "channel": "c"}),
    (ERROR, "LOG(%s): failed to write the journal - %s", ("/data/a.log.log~2", "x"), {"topic": "a.log", "error": "x"}),
    (ERROR, "PROTOCOL(V2): [%s] AUTH failed %s", ("1.2.3.4:5", "x"), {"client": "1.2.3.4:5", "error": "x"}),
    (ERROR, "failed to create channels of topic %s - %s", ("t", "x"), {"topic": "t", "error": "x"}),
])
def test_fields(level, text, arguments, fields):
    assert fields_of(level, text, arguments) == fields


def test_kinds():
    assert kind_of("[%s] - %s", ("1.2.3.4:5", "x")) == kind_of("[%s] - %s", ("6.7.8.9:0", "y"))
    assert kind_of("TOPIC(%s): %s", ("a", "x")) == kind_of("TOPIC(%s): %s", ("a", "y")) != kind_of("TOPIC(%s): %s",
                                                                                                  ("b", "x"))
    assert len(kind_of("TOPIC(%s)", ("x" * 1_000_000,))[1]) < 1000
