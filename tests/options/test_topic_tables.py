"""[topics."GLOB"] tables of the config file: their effects, their errors, and the output of `nsqc config check`."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.options.check import examine
from nsqc.options.declared import OptionError, TopicTable
from nsqc.options.file import read_config
from nsqc.options.rule_tables import covers


def test_tables_in_the_order_of_the_file(config):
    values, unknown = read_config(config(
        '[topics."b.*"]\nstorage = "log"\nsync = "fsync"\nretain_time = "1h"\nretain_bytes = "0x10"\n'
        'overflow = "drop-oldest"\n[topics.a]\nretain_time = 1500\n[topics."*"]\n[other]\nx = 1\n'))
    hour = 3600 * 10**9
    assert values == {"topics": (
        TopicTable("b.*", {"storage": "log", "sync": "fsync", "retain_time": hour, "retain_bytes": 16,
                           "overflow": "drop-oldest"}),
        TopicTable("a", {"retain_time": 1500 * 10**6}), TopicTable("*", {}))}
    assert list(unknown) == ["other"]


@pytest.mark.parametrize(("text", "line", "problem"), [
    ("topics = 5\n", 1, 'topics = 5 cannot be used - tables such as [topics."GLOB"] are expected'),
    ("[[topics]]\n", 1, 'topics = [{}] cannot be used - tables such as [topics."GLOB"] are expected'),
    ("[topics]\na = 5\n", 1, '[topics."a"]: 5 is not a table'),
    ('x = 1\n[topics."a.b"]\nstorage = "disk"\n', 3,
     "[topics.\"a.b\"]: storage = 'disk' cannot be used - 'disk' is not one of memory, log"),
    ("[topics.a]\n[topics.'b*']\n  sync = true\n", 3,
     '[topics."b*"]: sync = True cannot be used - expected a string, not true or false'),
    ("[topics.a]\nretain_time = -1\n", 2, '[topics."a"]: retain_time must be at least 0s, not -1ms'),
    ("[topics.a]\nretain_bytes = 99999999999999999999\n", 2,
     "[topics.\"a\"]: retain_bytes = 99999999999999999999 cannot be used - '99999999999999999999' is not an integer"),
    ("[topics.a]\nretain_bytes = 1.5\n", 2, '[topics."a"]: retain_bytes = 1.5 cannot be used'),
    ("[topics.a]\noverflow = []\n", 2, '[topics."a"]: overflow = [] cannot be used - expected a string, not a list'),
    ("[topics.a]\nretian_time = 1\n", 2, "[topics.\"a\"]: unknown key 'retian_time', did you mean retain_time?"),
    ("[topics.a]\nx = 1\n", 2, "[topics.\"a\"]: unknown key 'x', known are storage, sync, "),
    ("[topics.a.b]\nstorage = 'log'\n", 1, "[topics.\"a\"]: unknown key 'b'; a glob with a dot needs quotes"),
    ("[topics]\n'a'.storage = 5\n", 1, '[topics."a"]: storage = 5 cannot be used'),
    ("topics.'a'.storage = 5\n", 1, '[topics."a"]: storage = 5 cannot be used'),
    ('[topics."é\\n"]\nstorage = 5\n', 2, '[topics."é\n"]: storage = 5 cannot be used'),
    ("[topics.a]\n[topics.b]\nx = 1\n[topics.c]\n", 3, "[topics.\"b\"]: unknown key 'x'"),
    ('text = """\n[topics.a]\nx = 1\n"""\n[topics.a]\nx = 1\n', 6, "[topics.\"a\"]: unknown key 'x'"),
    ("[topic.a]\nstorage = 'log'\n", 1, "unknown key 'topic', did you mean topics?"),
])
def test_what_is_wrong_is_named_with_its_table(config, text, line, problem):
    path = config(text)
    with pytest.raises(OptionError) as error:
        read_config(path)
    assert str(error.value).startswith(f"config file {path}: {problem}")
    first = next(finding for finding in examine(path).findings if finding.fatal)
    assert first.line == line and first.text.startswith(problem)


def test_tables_without_effect(config):
    report = examine(config(
        '[topics."a*"]\nstorage = "log"\n[topics."ab*"]\n[topics.b]\n[topics.abc]\n[topics."ü"]\n[topics.""]\n'
        '[topics."*#ephemeral"]\nstorage = "log"\n[topics."*"]\n[topics."[b]"]\n'))
    assert [(line, fatal, text) for line, fatal, text in report.findings if line] == [
        (3, False, '[topics."ab*"] has no effect: [topics."a*"], which comes first, fits all of its topics'),
        (5, False, '[topics."abc"] has no effect: [topics."a*"], which comes first, fits all of its topics'),
        (6, False, '[topics."ü"] has no effect: it fits no valid topic name'),
        (7, False, '[topics.""] has no effect: it fits no valid topic name'),
        (8, False, '[topics."*#ephemeral"] has no effect: it fits ephemeral topics only, which are always kept in memory'),
        (11, False, '[topics."[b]"] has no effect: [topics."*"], which comes first, fits all of its topics'),
    ]
    assert report.option_count == 0 and len(report.options.topics) == 9


GLOBS = st.text("ab.*?[]!#", max_size=8)
NAMES = st.text("ab.", min_size=1, max_size=6)


@given(GLOBS, GLOBS, NAMES)
def test_what_covers_a_glob_matches_its_names(glob, other, name):
    if covers(glob, other) and fnmatchcase(name, other):
        assert fnmatchcase(name, glob)
