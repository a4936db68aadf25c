"""The texts generated from the option declarations: options page, man page, completion scripts."""

import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest

from nsqc.commands.app import describe
from nsqc.commands.pages.completion import WRITERS
from nsqc.commands.pages.facts import fixed_default, takes, value_range
from nsqc.commands.pages.manpage import escape, man_page
from nsqc.commands.pages.markdown import (
    OPTIONS_TITLE,
    options_page,
    with_admin_options,
    with_lookupd_options,
    with_metrics,
    with_rules,
)
from nsqc.metrics.declared import EVERY
from nsqc.options.admin import ADMIN
from nsqc.options.declared import FLAGS, KEYS, SERVE, Options, flag_name
from nsqc.options.flags import show
from nsqc.options.lookupd import LOOKUPD
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
    page = (ROOT / "docs/metrics.md").read_text()
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
    assert page == with_lookupd_options(page), "run make pages"
    options = page.partition(OPTIONS_TITLE)[2]
    assert re.findall(r"^\| `(--\S+)`", options, re.MULTILINE) == [flag_name(name) for name in LOOKUPD.flags]
    assert set(re.findall(r"^\| `(--\S+)`.*\*not in nsqlookupd\*", options, re.MULTILINE)) == {
        flag_name(name) for name, flag in LOOKUPD.flags.items() if flag.own}


def test_the_options_of_admin_are_fresh():
    page = (ROOT / "docs/admin.md").read_text()
    assert page == with_admin_options(page), "run make pages"
    options = page.partition(OPTIONS_TITLE)[2]
    assert re.findall(r"^\| `(--\S+)`", options, re.MULTILINE) == [flag_name(name) for name in ADMIN.flags]


# ---------------------------------------------------------------------- man page


def test_the_man_page_has_its_sections_and_every_option():
    page = man_page(describe())
    assert page.startswith(".TH NSQC 1 ")
    assert re.findall(r'^\.SH "(.+)"$', page, re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "OPTIONS OF LOOKUPD", "OPTIONS OF ADMIN", "SIGNALS", "FILES",
        "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
    for declaration, start, end in ((SERVE, "OPTIONS", "OPTIONS OF LOOKUPD"), (LOOKUPD, "OPTIONS OF LOOKUPD", "OPTIONS OF ADMIN"),
                                    (ADMIN, "OPTIONS OF ADMIN", "SIGNALS")):
        options = page[page.index(f'.SH "{start}"'):page.index(f'.SH "{end}"')]
        assert re.findall(r'^\.SS "(.+)"$', options, re.MULTILINE) == [escape(group) for group in declaration.by_group()]
        assert re.findall(r"^\.TP\n\\fB(\S+)\\fR=", options, re.MULTILINE) == [
            escape(flag_name(name)) for name in declaration.flags]
    for node in describe().all():
        assert node.nodes or f"\n\\fB{escape(node.words)}\\fR" in page


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


def test_the_tree_knows_every_command_and_flag():
    nodes = {node.words: node for node in describe().all()}
    assert set(nodes) >= {"nsqc", "nsqc serve", "nsqc config", "nsqc config check", "nsqc config show",
                          "nsqc config init", "nsqc version", "nsqc man", "nsqc completion"}
    flags = [flag_name(name) for name in FLAGS]
    assert [option.name for option in nodes["nsqc serve"].options] == ["--help", *flags]
    assert [option.name for option in nodes["nsqc lookupd"].options] == [
        "--help", *(flag_name(name) for name in LOOKUPD.flags)]
    assert [option.name for option in nodes["nsqc config show"].options] == ["--json", "--lookupd", "--admin", "--help", *flags]
    assert nodes["nsqc config check"].arguments == [("FILE", "file", False)]
    assert nodes["nsqc config init"].arguments == [("[FILE]", "file", False)]
    assert nodes["nsqc completion"].arguments == [("SHELL", ("bash", "zsh", "fish"), False)]
    assert [(word.name, word.values, word.many) for word in nodes["nsqc pub"].arguments] == [
        ("TOPIC", "topic", False), ("[FILE]", "file", True)]
    values = {option.name: option.values for option in nodes["nsqc serve"].options}
    assert values["--config"] == values["--tls-key"] == "file"
    assert values["--data-path"] == "folder"
    assert values["--tls-client-auth-policy"] == ("require", "require-verify")
    assert values["--deflate"] == ("true", "false")


def test_zsh_has_every_command_and_flag():
    text = WRITERS["zsh"](describe())
    assert text.startswith("#compdef nsqc\n")
    for node in describe().all():
        body = re.search(rf"^{'_'.join(('', *node.path))}\(\) {{\n(.*?)^}}$", text, re.MULTILINE | re.DOTALL)[1]
        assert re.findall(r"^        '\*?(--[a-z0-9-]+)=?-?\[", body, re.MULTILINE) == [one.name for one in node.options]
        assert re.findall(r"^                '([a-z-]+):", body, re.MULTILINE) == [one.path[-1] for one in node.nodes]
        assert re.findall(r"\) (_nsqc[\w-]+) ;;", body) == ["_".join(("", *one.path)) for one in node.nodes]
        # Every quote is closed on its line.
        assert all(line.replace("'\\''", "").count("'") % 2 == 0 for line in body.splitlines())
    assert "value:(debug info warn error fatal)'" in text
    assert "--config=[a TOML file with options; flags win over it]:value:_files'" in text


def test_fish_has_every_command_and_flag():
    lines = WRITERS["fish"](describe()).splitlines()
    assert all(line.startswith(("#", "complete -c nsqc ")) for line in lines)
    assert all(line.replace("\\'", "").count("'") % 2 == 0 for line in lines)
    serve = [line for line in lines if "-n '__fish_seen_subcommand_from serve' -l " in line]
    assert [re.search(r" -l (\S+)", line)[1] for line in serve] == ["help"] + [name.replace("_", "-") for name in FLAGS]
    assert any("-l log-level -x -a 'debug info warn error fatal' -d " in line for line in serve)
    assert any("-l config -r -F -d " in line for line in serve)
    assert any("-l data-path -x -a '(__fish_complete_directories)' -d " in line for line in serve)
    for name in ("serve", "config", "version", "man", "completion"):
        assert any(line.startswith(f"complete -c nsqc -n '__fish_use_subcommand' -a {name} ") for line in lines)
    assert any("seen_subcommand_from config; and __fish_seen_subcommand_from show' -l json " in line for line in lines)


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """bash(words, ...) -> the completions for each list of words; the last word is being typed."""
    folder = tmp_path_factory.mktemp("bash")
    (folder / "script").write_text(WRITERS["bash"](describe()))
    (folder / "a file.cfg").touch()
    (folder / "folder").mkdir()

    def ask(*typed: list[str]) -> list[list[str]]:
        asks = "\n".join(f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _nsqc; "
                         'printf "%s\\t" "${COMPREPLY[@]}"; echo' for words in typed)
        done = subprocess.run(["bash", "--norc", "-c", f"set -u; source ./script\n{asks}"], cwd=folder,
                              capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        return [[word for word in line.split("\t") if word] for line in done.stdout.splitlines()]

    ask.folder = folder
    return ask


def test_bash_proposes_every_command_and_flag(bash):
    nodes = list(describe().all())
    for node, flags, words in zip(nodes, bash(*([*node.path, "--"] for node in nodes)),
                                  bash(*([*node.path, ""] for node in nodes)), strict=True):
        assert flags == [option.name for option in node.options]
        assert set(words) >= {one.path[-1] for one in node.nodes}


@pytest.mark.parametrize("words, proposed", [
    (["nsqc", "conf"], ["config"]),
    (["nsqc", "config", "s"], ["show"]),
    (["nsqc", "completion", "z"], ["zsh"]),
    (["nsqc", "serve", "--max-msg"], ["--max-msg-timeout", "--max-msg-size"]),
    (["nsqc", "config", "show", "--js"], ["--json"]),
    (["nsqc", "serve", "--js"], []),
    (["nsqc", "serve", "--log-level", "w"], ["warn"]),
    (["nsqc", "serve", "-log-level", "w"], ["warn"]),
    (["nsqc", "serve", "--log-level", "=", "w"], ["warn"]),
    (["nsqc", "serve", "--log-level", "="], ["debug", "info", "warn", "error", "fatal"]),
    (["nsqc", "serve", "--log-level=w"], ["--log-level=warn"]),
    (["nsqc", "serve", "--deflate", "=", ""], ["true", "false"]),
    (["nsqc", "serve", "--deflate", "--sna"], ["--snappy"]),
    (["nsqc", "serve", "--tls-required", "--sna"], ["--snappy"]),
    (["nsqc", "serve", "--mem-queue-size", ""], []),
    (["nsqc", "serve", "--mem-queue-size", "=", ""], []),
    (["nsqc", "serve", "--config", "a"], ["a file.cfg"]),
    (["nsqc", "serve", "--config", "=", "a"], ["a file.cfg"]),
    (["nsqc", "serve", "--data-path", ""], ["folder"]),
    (["nsqc", "config", "check", "a"], ["a file.cfg"]),
    (["nsqc", "serve", "--log-prefix", "config", "--snap"], ["--snappy"]),
    (["nsqc", "pub", "orders", "a"], ["a file.cfg"]),
    (["nsqc", "pub", "--rate", "5", "orders", "a"], ["a file.cfg"]),
    (["nsqc", "pub", "--rate", "=", "5", "a"], []),       # a topic
    (["nsqc", "pub", "--quiet", "orders", "one", "a"], ["a file.cfg"]),
    (["nsqc", "nodes", "--js"], ["--json"]),
    (["nsqc", "topic", "r"], ["rules", "read"]),
    (["nsqc", "topic", "read", "orders", "--u"], ["--until"]),
])
def test_bash_proposes_values_by_their_kind(bash, words, proposed):
    assert bash(words) == [proposed]


def test_bash_proposes_names_by_their_place(tmp_path):
    """Words after a topic are channels, for tools that take one."""
    (tmp_path / "script").write_text(WRITERS["bash"](describe()) + 'nsqc() { echo "a-$2"; }\n')
    for words, name in ((["peek", ""], "a-topic"), (["peek", "orders", ""], "a-channel"), (["tail", "orders", ""], "a-topic"),
                        (["stat", "--interval", "1s", "orders", ""], "a-channel"), (["tail", "--channel", ""], "a-channel")):
        typed = " ".join(repr(word) for word in ["nsqc", *words])
        done = subprocess.run(
            ["bash", "--norc", "-c", f'source ./script; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _nsqc; echo "${{COMPREPLY[@]}}"'],
            cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert (done.stdout, done.stderr) == (f"{name}\n", ""), words


def test_bash_completes_what_is_typed(bash):
    """Through readline, which has its own way to split words."""
    terminal, inner = pty.openpty()
    shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=inner, stdout=inner, stderr=inner,
                             cwd=bash.folder, start_new_session=True,
                             env={**os.environ, "TERM": "dumb", "PS1": "READY>", "HISTFILE": "", "INPUTRC": "/dev/null"})

    def read_until(end: str) -> str:
        seen = b""
        while not re.search(end, text := seen.decode(errors="replace").replace("\r", ""), re.DOTALL):
            assert select.select([terminal], [], [], WAIT_SECONDS)[0], text
            seen += os.read(terminal, 65536)
        return text

    try:
        read_until("READY>")
        os.write(terminal, b"source ./script; nsqc() { printf '[%s]' \"$@\"; echo; echo DONE; }; nsqc\n")
        read_until("\nDONE\n.*READY>")
        for line, got in [("nsqc conf\tsh\t--js\t", "[config][show][--json]"),
                          ("nsqc serve --log-le\twa\t--defl\t", "[serve][--log-level][warn][--deflate]"),
                          ("nsqc serve --log-level=wa\t --deflate=f\t", "[serve][--log-level=warn][--deflate=false]"),
                          ("nsqc serve --config=a\t --data-path fo\t", "[serve][--config=a file.cfg][--data-path][folder/]")]:
            os.write(terminal, line.encode() + b"\n")
            assert f"\n{got}\nDONE\n" in read_until("\nDONE\n.*READY>")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
        os.close(inner)


def test_a_default_in_a_text_is_the_options():
    for name in FLAGS:
        if fixed_default(name):
            assert fixed_default(name).strip('"') == show(FLAGS[name].kind, getattr(Options(), name))
