"""Expressions have the meaning of Go's regexp package, and none takes long."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.peers.patterns import Pattern, PatternError, compiled

MATCHING = [
    # unanchored
    ("", ""), ("", "t"), ("b", "abc"), ("^a", "abc"), ("c$", "abc"), ("^abc$", "abc"), (".*", ""), (".*", "x"),
    ("^.*$", ""), ("b|x", "abc"), ("x|", "abc"), ("^(x|abc)$", "abc"), ("a.c", "xabcx"), ("", "a#ephemeral"),
    ("#ephemeral$", "a#ephemeral"), (r"\Aab", "abc"), (r"bc\z", "abc"),
    # repetition
    ("^ab*c$", "ac"), ("^ab*c$", "abbbc"), ("^ab+c$", "abbc"), ("^ab?c$", "ac"), ("^a{3}$", "aaa"), ("^a{2,}$", "aaa"),
    ("^a{2,3}$", "aa"), ("^a*?b+?c??$", "ab"), ("^(ab){2}$", "abab"), ("^(a*)*$", "aaa"), ("^(|a)+$", "aaa"),
    ("a{,2}", "xa{,2}"), ("a{", "a{"), ("a{x}", "a{x}"), ("a{01}", "a{01}"), ("^a{0}$", ""), ("^(?:a{2}){3}$", "aaaaaa"),
    ("^*a", "a"), ("^a{2}?$", "aa"),
    # sets
    ("^[abc]+$", "cab"), ("^[^abc]+$", "xyz"), ("^[a-c0-9]+$", "b7"), ("^[]a]$", "]"), ("^[^]a]$", "b"), ("^[a-]$", "-"),
    ("^[-a]$", "-"), (r"^[\d.]+$", "1.2"), (r"^[^\D]+$", "12"), (r"^\w+$", "aZ_9"), (r"^\W$", "-"), (r"^\S+$", "a-b"),
    ("^[[:alpha:]]+$", "aZ"), ("^[[:^digit:]]+$", "a-b"), ("^[[:word:].]+$", "a_.9"), ("^[[:xdigit:]]+$", "09afAF"),
    (r"^[\-\]]+$", "-]"), (r"^\pL+$", "aZ"), (r"^\p{Lu}+$", "AZ"), (r"^\PL+$", "1-_"), (r"^\p{^Lu}+$", "a1"),
    (r"^[\pN_]+$", "1_2"), (r"^\p{Latin}+$", "aZ"), ("^[a-c-e]+$", "a-e"), ("^[[:graph:]]$", "~"), ("^[^é]$", "a"),
    ("^[+--]$", ","), (r"^[\x61-\x63]+$", "abc"),
    # escapes
    (r"^a\.b$", "a.b"), (r"^\x61\x{62}\143$", "abc"), (r"^\Qa.b\E$", "a.b"), (r"\Qa.b", "xa.b"), (r"^a\-b\_c$", "a-b_c"),
    (r"^\Q\E$", ""), (r"\bab\b", "x.ab-y"), (r"a\Bb", "ab"),
    # groups and flags
    ("^(?:a|b)$", "b"), ("^(?P<x>a)(?<y>b)$", "ab"), ("(?i)^ABC$", "aBc"), ("^a(?i)B$", "ab"), ("^a(?i:B)c$", "abc"),
    ("^(?i)a(?-i)b$", "Ab"), ("(?s).", "a"), ("(?ims-U)A", "a"), ("(?i)[a-c]+$", "ABC"), ("(?i)^[[:lower:]]$", "A"),
    ("^(a(?i)b|C)d$", "aBd"), ("^(a(?i)b|C)d$", "cd"), ("(?i)\u212a", "k"), ("()", ""), ("((((a))))", "a"),
    ("(?i)^[\u212a]$", "k"), (r"(?i)^\x{17f}$", "S"), (r"^\P{Greek}$", "a"), (r"^\Q(?P<x>a)(?P<x>b)\E$", "(?P<x>a)(?P<x>b)"),
    (r"^[(?P<x>]\((?P<x>a)$", "?(a"), (r"^\\C$", "\\C"), (r"^[^\pL]{64}$", "1" * 64),
]

DIFFERING = [
    ("^a", "ba"), ("a$", "ab"), ("^$", "a"), ("a", ""), ("^ab+c$", "ac"), ("^a{3}$", "aa"), ("^a{2,3}$", "aaaa"),
    ("^[abc]+$", "cad"), ("^[^abc]+$", "xay"), (r"^\d+$", "1a"), (r"^\w+$", "a-b"), ("^[[:alpha:]]+$", "a1"),
    (r"^a\.b$", "axb"), (r"\bab\b", "xab"), (r"a\Bb", "a.b"), ("^abc$", "ABC"), ("^a(?i:B)c$", "abC"), ("^(?i)a(?-i)b$", "aB"),
    ("^(a(?i)b|C)d$", "aBD"), (r"^\p{Lu}+$", "Ab"), ("é", "e"), ("^mine$", "mine2"), ("^[^é]$", "ab"), ("a{0}$^", "a"),
]

REFUSED = [
    "(", ")", "a)", "[", "[a", "[]", "[^]", "a**", "a*+", "a+?*", "*", "+a", "?", "|*", "(*)", "(?i)*", "{2}", "a{2}{3}",
    "a{1001}", "a{2,1}", "a{1,1001}", "(a{100}){11}", "((a{2}){20}){30}", "[b-a]", "a\\", "\\", r"\1", r"(a)\1", r"\8",
    r"\e", r"\C", r"\Z", r"\y", r"\x", r"\xg1", r"\x{}", r"\x{110000}", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)",
    "(?P=x)", "(?P<x>a)(?P<x>b)", "(?P<>a)", "(?P<x", "(?z)", "(?i-)", "(?i", "(?#x)", r"\p", r"\p{", r"\p{Nope}",
    "[[:nope:]]", r"[a-\d]", r"[\1]", "(" * 2000 + ")" * 2000, "((((a{100}){10}b){1}){1000}){2}",
    r"a\E", "(?P<é>a)", r"a\\\C", r"\Q(?P<x>a)\E(?P<x>a)|(?<x>b)", "((?:(" * 400 + ")))" * 400,
]


def test_matches():
    assert [(text, name) for text, name in MATCHING if not Pattern(text).matches(name)] == []


def test_does_not_match():
    assert [(text, name) for text, name in DIFFERING if Pattern(text).matches(name)] == []


def test_is_refused():
    for text in REFUSED:
        with pytest.raises(PatternError):
            pytest.fail(f"{Pattern(text)} of {text!r}")


@pytest.mark.parametrize("text, name, whole", [
    ("a", "a", True), ("a", "ab", False), ("a", "ba", False), ("a|ab", "ab", True), ("ab|a", "ab", True), ("^a$", "a", True),
    (".*", "x", True), ("", "", True), ("", "a", False), ("a.*", "abc", True), (".*c", "abc", True), ("b", "abc", False),
    ("a|", "", True), ("(a|b)*", "abab", True), ("(a|b)*", "abac", False), ("^b", "ab", False), ("a+", "aaa", True),
])
def test_anchored(text, name, whole):
    assert compiled(text, True).matches(name) == whole


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x$", "(a?){40}a{40}$", "((a*)*)*b$", "(a{0,30}){30}$"])
def test_the_time_is_linear(text):
    """Python's own engine would not return from most of these."""
    assert not Pattern(f"^{text}").matches("a" * 63 + "!")


def test_large_ones_are_refused_at_once():
    with pytest.raises(PatternError):
        Pattern("((a|b|c|d|e|f|g){30}){30}" * 10)


ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", "1", "^", "$", r"\b"])
EXPRESSIONS = st.recursive(ATOMS, lambda inner: st.one_of(
    st.lists(inner, min_size=1, max_size=4).map("".join),
    st.lists(inner, min_size=1, max_size=3).map(lambda items: "(" + "|".join(items) + ")"),
    st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(lambda it: f"(?:{it[0]}){it[1]}"),
), max_leaves=8)


@settings(max_examples=500, deadline=None)
@given(EXPRESSIONS, st.text("abc1-", max_size=8))
def test_as_python_where_both_mean_the_same(text, name):
    theirs = re.compile(text.replace("$", r"\Z"), re.ASCII)
    assert Pattern(text).matches(name) == bool(theirs.search(name))
    assert Pattern(text, anchored=True).matches(name) == bool(theirs.fullmatch(name))
