"""Circles of dead letters in the tables of a config file."""

import pytest

from nsqc.options.check import examine
from nsqc.options.rules import may_fit

A = '[channels."a/*"]\nmax_attempts = 1\ndead_letter = "b"\n'


@pytest.mark.parametrize("text, circle", [
    (A + '[channels."b/y"]\nmax_attempts = 1\ndead_letter = "a"\n', '[channels."b/y"] to a, [channels."a/*"] to b'),
    (A + '[channels."[bc]/*"]\nmessage_ttl = "1s"\nexpired = "dead-letter"\ndead_letter = "a"\n', "to a, "),
    (A + '[channels."*"]\nmax_depth = 5\noverflow = "dead-letter"\ndead_letter = "a"\n', "to a, "),
    ('[topics."b"]\nmax_depth = 5\noverflow = "dead-letter"\n' + A + '[channels."b/y"]\ndead_letter = "a"\n', "to a, "),
    # By default names: a to a.dead, whose channels name a.
    ('[channels."a.dead/*"]\nmax_attempts = 1\ndead_letter = "a"\n[channels."*"]\nmax_attempts = 9\n',
     '[channels."*"] to a.dead, [channels."a.dead/*"] to a'),
    (A + '[channels."b/*"]\nmax_attempts = 1\ndead_letter = "c"\n[channels."c/*"]\nmax_attempts = 1\ndead_letter = "a"\n',
     "to c, "),
], ids=["two", "expired", "overflow", "a topic's limits", "default names", "three"])
def test_circles(tmp_path, text, circle):
    (tmp_path / "nsqd.toml").write_text(text)
    findings = [finding for finding in examine(str(tmp_path / "nsqd.toml")).findings if "circle" in finding.text]
    assert len(findings) == 1 and findings[0].fatal and circle in findings[0].text
    assert "dead_letter = " in text.splitlines()[findings[0].line - 1]


@pytest.mark.parametrize("text", [
    A, A + '[channels."*/*"]\nmax_attempts = 5\ndead_letter = "graveyard"\n',       # its own channels keep theirs
    A + '[channels."b/y"]\ndead_letter = "a"\n',                                     # moves nothing
    A + '[channels."b/*"]\nrate = 5.0\n[channels."*/y"]\nmax_attempts = 1\ndead_letter = "a"\n',   # hidden for b
    '[channels."*"]\nmax_attempts = 1\n', '[channels."*.dead/*"]\nmax_attempts = 1\n',
    A + '[channels."b.*/y"]\nmax_attempts = 1\ndead_letter = "a"\n'])
def test_no_circles(tmp_path, text):
    (tmp_path / "nsqd.toml").write_text(text)
    assert not [finding for finding in examine(str(tmp_path / "nsqd.toml")).findings if "circle" in finding.text]


@pytest.mark.parametrize("glob, fits", [
    ("t/c", True), ("t/", False), ("t/*", True), ("t*", True), ("*", True), ("*/c", True), ("?/c", True), ("tt/c", False),
    ("[st]/c", True), ("[!t]/c", False), ("t", False), ("*t", True), ("u*", False)])
def test_globs_for_channels_of_a_topic(glob, fits):
    assert may_fit(glob, "t") == fits
