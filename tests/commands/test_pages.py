"""The texts generated from the option declarations: options page, man page, completion scripts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.completion import get_completion_script

from nsqc.commands import COMMANDS
from nsqc.commands.app import describe
from nsqc.commands.pages.manpage import escape, fixed_default, man_page, takes, value_range
from nsqc.commands.pages.markdown import OPTIONS_TITLE, options_page, with_metrics, with_options, with_rules
from nsqc.metrics.declared import EVERY
from nsqc.options.declared import FLAGS, KEYS, SERVE, Options, flag_name
from nsqc.options.flags import show
from nsqc.options.servers import ADMIN_SERVER, LOOKUPD
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent


# ---------------------------------------------------------------------- facts


def test_facts():
    assert [value_range(name) for name in ("node_id", "sync_every", "msg_timeout", "max_req_timeout", "log_prefix")] == [
        "0 to 1023", "at least 1", "at least 1ns", "0s to 1193h2m47.295s", ""]
    assert [fixed_default(name) for name in ("node_id", "broadcast_address", "log_prefix", "msg_timeout")] == [
        "", "", '"[nsqd] "', "1m0s"]
    assert takes("auth_http_request_method") == "get|post"
    assert takes("log_level") == "debug|info|warn|error|fatal"
    assert takes("tls_cert") == "file"


def test_choices_of_texts_are_what_the_daemon_takes():
    for name, flag in FLAGS.items():
        default = getattr(Options(), name)
        assert not flag.choices or default in ("", *flag.choices)
    assert {name for name, flag in FLAGS.items() if flag.choices} == {
        "auth_http_request_method", "tls_client_auth_policy", "http_extended_api", "audit_level"}


# ---------------------------------------------------------------------- docs/options.md


def test_the_options_page_is_fresh():
    assert (ROOT / "docs/options.md").read_text() == options_page(), "run make pages"


def test_the_page_of_metrics_is_fresh():
    page = (ROOT / "docs/monitoring.md").read_text()
    assert page == with_metrics(page), "run make pages"
    assert re.findall(r"^\| `(nsqc_\w+)` ", page, re.MULTILINE) == [metric.sample for metric in EVERY]


def test_the_page_of_delivery_rules_is_fresh():
    page = (ROOT / "docs/delivery.md").read_text()
    assert page == with_rules(page), "run make pages"


def test_the_options_page_has_a_row_for_every_option():
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in options_page().splitlines() if line.startswith("| `--")]
    assert [row[0].strip(" `") for row in rows] == [flag_name(name) for name in FLAGS]
    assert {len(row) for row in rows} == {6}
    assert [row[1].strip(" `") for row in rows if row[1].strip()] == list(KEYS)
    assert {row[0].strip(" `") for row in rows if "*not in nsqd*" in row[5]} == {
        flag_name(name) for name, flag in FLAGS.items() if flag.own}


def test_the_options_of_lookupd_are_fresh():
    page = (ROOT / "docs/lookupd.md").read_text()
    assert page == with_options(page, LOOKUPD), "run make pages"
    options = page.partition(OPTIONS_TITLE)[2]
    assert re.findall(r"^\| `(--\S+)`", options, re.MULTILINE) == [flag_name(name) for name in LOOKUPD.flags]
    assert set(re.findall(r"^\| `(--\S+)`.*\*not in nsqlookupd\*", options, re.MULTILINE)) == {
        flag_name(name) for name, flag in LOOKUPD.flags.items() if flag.own}


def test_the_options_of_admin_are_fresh():
    page = (ROOT / "docs/admin.md").read_text()
    assert page == with_options(page, ADMIN_SERVER), "run make pages"
    options = page.partition(OPTIONS_TITLE)[2]
    assert re.findall(r"^\| `(--\S+)`", options, re.MULTILINE) == [flag_name(name) for name in ADMIN_SERVER.flags]


# ---------------------------------------------------------------------- man page


def test_the_man_page_has_its_sections_and_every_option():
    page = man_page(describe())
    assert page.startswith(".TH NSQC 1 ")
    assert re.findall(r'^\.SH "(.+)"$', page, re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "OPTIONS OF LOOKUPD", "OPTIONS OF ADMIN", "SIGNALS", "FILES",
        "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
    for declaration, start, end in ((SERVE, "OPTIONS", "OPTIONS OF LOOKUPD"), (LOOKUPD, "OPTIONS OF LOOKUPD", "OPTIONS OF ADMIN"),
                                    (ADMIN_SERVER, "OPTIONS OF ADMIN", "SIGNALS")):
        options = page[page.index(f'.SH "{start}"'):page.index(f'.SH "{end}"')]
        assert re.findall(r'^\.SS "(.+)"$', options, re.MULTILINE) == [escape(group) for group in declaration.by_group()]
        assert re.findall(r"^\.TP\n\\fB(\S+)\\fR=", options, re.MULTILINE) == [
            escape(flag_name(name)) for name in declaration.flags]
    for words in ("serve", "config show", "topic list", "tail", "spark lag", "completion"):
        assert f"\n\\fB{escape(f'nsqc {words}')}\\fR" in page


def test_the_man_page_is_sound_roff():
    page = man_page(describe())
    requests = {"TH", "SH", "SS", "TP", "PP", "RS", "RE", "nf", "fi", "br"}
    for line in page.splitlines():
        assert line, "a blank line makes a gap"
        assert not line.startswith("'")
        assert not line.startswith(".") or line[1:].split()[0] in requests, line
        # Fonts end on their line, and no - remains that man would turn into a dash.
        assert re.findall(r"\\f(.)", line)[1::2] == ["R"] * (line.count("\\f") // 2), line
        assert line.startswith(".") or not re.search(r"(?<!\\)-", line), line
        assert set(re.findall(r"\\(.)", line)) <= set("f-e&("), line
    assert page.count(".RS") == page.count(".RE")
    assert page.count(".nf") == page.count(".fi")


def test_what_man_would_take_for_its_own_is_escaped():
    assert escape("a-b\\c'd") == "a\\-b\\ec\\(aqd"
    assert escape(".x") == "\\&.x"
    assert escape("'x") == "\\&\\(aqx"


# ---------------------------------------------------------------------- completion


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """bash(words, ...) -> the completions for each list of words; the last word is being typed. Files are left to bash, so
    there are none for them."""
    folder = tmp_path_factory.mktemp("bash")
    (folder / "nsqc").write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom nsqc.cli import main\nmain()\n")
    (folder / "nsqc").chmod(0o755)
    script = get_completion_script(prog_name="nsqc", complete_var="_NSQC_COMPLETE", shell="bash")

    def ask(*typed: list[str]) -> list[list[str]]:
        asks = "\n".join(f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _nsqc_completion nsqc; "
                         'printf "%s\\t" "${COMPREPLY[@]}"; echo' for words in typed)
        done = subprocess.run(["bash", "--norc", "-c", f"set -u\n{script}\n{asks}"], cwd=folder, capture_output=True, text=True,
                              timeout=WAIT_SECONDS, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NSQC_CONFIG": "/nowhere"})
        assert (done.returncode, done.stderr) == (0, "")
        return [[word for word in line.split("\t") if word] for line in done.stdout.splitlines()]

    return ask


def test_bash_proposes_what_fits(bash):
    cases = [
        (["nsqc", "conf"], ["config"]),
        (["nsqc", "config", "s"], ["show"]),
        (["nsqc", "completion", "z"], ["zsh"]),
        (["nsqc", "serve", "--max-msg"], ["--max-msg-timeout", "--max-msg-size"]),
        (["nsqc", "lookupd", "--tomb"], ["--tombstone-lifetime"]),
        (["nsqc", "config", "show", "--js"], ["--json"]),
        (["nsqc", "config", "show", "--snap"], ["--snappy"]),
        (["nsqc", "serve", "--js"], []),
        (["nsqc", "serve", "--log-level", "w"], ["warn"]),
        (["nsqc", "serve", "--log-level=w"], ["warn"]),
        (["nsqc", "serve", "--deflate", "--sna"], ["--snappy"]),
        (["nsqc", "serve", "--mem-queue-size", ""], []),
        (["nsqc", "serve", "--config", "a"], []),
        (["nsqc", "nodes", "--js"], ["--json"]),
        (["nsqc", "topic", "r"], ["rules", "read"]),
        (["nsqc", "topic", "read", "orders", "--u"], ["--until"]),
        (["nsqc", "to-file", "--compress", ""], ["none", "gzip", "zstd"]),
    ]
    assert bash(*(words for words, _ in cases)) == [proposed for _, proposed in cases]


def test_every_command_and_flag_is_proposed(bash):
    names = [command.name for command in COMMANDS]
    found = bash(["nsqc", ""], *(["nsqc", name, "--"] for name in ("serve", "lookupd", "admin")))
    assert found[0] == names
    for declaration, flags in zip((SERVE, LOOKUPD, ADMIN_SERVER), found[1:], strict=True):
        assert set(flags) >= {flag_name(name) for name in declaration.flags}


def test_a_default_in_a_text_is_the_options():
    for name in FLAGS:
        if fixed_default(name):
            assert fixed_default(name).strip('"') == show(FLAGS[name].kind, getattr(Options(), name))
