"""Names of topics and channels."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.wire.parser import is_ephemeral, is_valid_name

RULE = re.compile(rb"[.a-zA-Z0-9_-]+(#ephemeral)?")


@pytest.mark.parametrize("name", [b"a", b"A.b-c_9", b"." * 64, b"x#ephemeral", b"-", b"x" * 54 + b"#ephemeral"])
def test_valid(name):
    assert is_valid_name(name)


@pytest.mark.parametrize("name", [b"", b"a" * 65, b"#ephemeral", b"a b", b"a/b", b"a#", b"a#ephemera", b"a\n",
                                  "ü".encode(), b"a#ephemeral#ephemeral", b"x" * 55 + b"#ephemeral", b"a\x00"])
def test_invalid(name):
    assert not is_valid_name(name)


@given(st.binary(max_size=70) | st.text("ab.-_#ephmral", max_size=70).map(str.encode))
def test_the_rule(name):
    assert is_valid_name(name) == bool(len(name) <= 64 and RULE.fullmatch(name))


def test_ephemeral():
    assert is_ephemeral(b"a#ephemeral")
    assert not is_ephemeral(b"#ephemeral")
    assert not is_ephemeral(b"ephemeral")
