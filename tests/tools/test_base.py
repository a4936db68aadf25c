"""Shared by all tools: command lines, help, nodes, names, errors, a quick start."""

import os
import re
import shlex
import signal
import subprocess
import sys
from importlib import import_module

import pytest

from nsqc.commands import COMMANDS, TOOLS
from nsqc.options.option import Kind, Option
from nsqc.tools import running as output
from nsqc.tools.cluster import local_node
from nsqc.tools.declare import Argument, Tool, UsageError, leaves
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.tcpserver import Answering
from tests.tools.calling import help_of, parsed, refusal
from tests.tools.conftest import ENV, ROOT

ALL = {name: import_module(module).TOOL for name, module in TOOLS.items()}
LEAVES = [tool for each in ALL.values() for tool in leaves(each)]
TOOL = Tool(("x",), "A tool.", lambda values: 0, options=(
    Option("name", "n", many=True), Option("count", "c", Kind.INT, 3, short="n", least=0, most=9), Option("on", "o", Kind.BOOL, False),
    Option("time", "t", Kind.DURATION, 1_500_000_000), Option("size", "s", Kind.SIZE, 0), Option("share", "f", Kind.FLOAT, 0.5),
    Option("mode", "m", choices=("a", "b"), default="a")), arguments=(Argument("FIRST", "f"), Argument("REST", "r", required=False, many=True)))


# ---------------------------------------------------------------------- command lines


def test_values():
    values = parsed(TOOL, ["--name", "a", "--name=b", "-n5", "one", "--on", "--size", "64K", "--time=250ms", "--", "--two", "-"])
    assert (values.texts("name"), values.number("count"), values.flag("on")) == (("a", "b"), 5, True)
    assert (values.number("size"), values.seconds("time"), values.decimal("share")) == (65536, 0.25, 0.5)
    assert (values.text("FIRST"), values.texts("REST"), values.text("mode")) == ("one", ("--two", "-"), "a")
    assert values.given("count") and not values.given("share")


@pytest.mark.parametrize("words, text", [
    ((), "FIRST is missing"), (("x", "--nam", "a"), "No such option: --nam"), (("x", "--name"), "Option '--name' requires an argument"),
    (("x", "--on=1"), "Option '--on' does not take a value"), (("x", "-n", "ten"), "'ten' is not an integer"), (("x", "-n", "10"), "10 is not from 0 to 9"),
    (("x", "--time", "1"), "is not a duration"), (("x", "--size", "1x"), "is not a size"), (("x", "--share", "nan"), "is not a number"),
    (("x", "--mode", "c"), "'c' is not one of a, b"), (("x", "-z"), "No such option: -z"), (("x", "-n", "-1"), "--count: -1 is not from 0 to 9"),
    (("x", "-n", "1", "--count=2"), "--count may be given only once"), (("x", "--mode", "a", "--mode", "b"), "--mode may be given only once")])
def test_what_is_not_understood(words, text):
    assert text in refusal(TOOL, words)


EVERY_PATH = [(tool, item) for tool in LEAVES for item in (*tool.options, *tool.arguments)
              if item.kind in (Kind.FILE, Kind.FOLDER)]


@pytest.mark.parametrize("tool, item", {(item.name, type(item)): (tool, item) for tool, item in EVERY_PATH}.values(),
                         ids=lambda part: getattr(part, "name", ""))     # tools share the options of a name
def test_a_path_is_one_of_this_machine(tool, item, monkeypatch):
    """s3a://bucket/x would become a folder s3a: in the working folder, where messages are finished."""
    monkeypatch.setenv("HOME", "/home/of/mine")
    names = ["end" if argument.kind is Kind.PLACE else argument.name.lower() for argument in tool.arguments if argument is not item]
    is_option, place = isinstance(item, Option), f"--{item.name}" if isinstance(item, Option) else item.name

    def words_with(path):
        return [*names, *(["--" + item.name] if is_option else []), path]

    for path in ("s3a://bucket/x", "dbfs:/x", "file://host/x", "file:x"):
        assert f"{place}: {path} is not " in refusal(tool, words_with(path))
    for path, meant in (("x/y", "x/y"), ("-", "-"), ("a:b", "a:b"), ("file:/x", "/x"), ("file:///x", "/x"), ("~/x", "/home/of/mine/x")):
        values = parsed(tool, words_with(path))
        assert (values.texts(item.name) == (meant,)) if item.many else (values.text(item.name) == meant)


def test_the_options_of_tools_that_are_paths():
    assert {item.name for _, item in EVERY_PATH} >= {"output-dir", "work-dir", "svg", "tls-ca", "config", "FILE", "PATH"}


NAMED = Tool(("x",), "A tool.", lambda values: 0, options=(Option("rate", "r", Kind.INT, least=0, most=2_000_000),), arguments=(
    Argument("TOPIC", "t", Kind.TOPIC), Argument("CHANNEL", "c", Kind.CHANNEL, required=False)))


@pytest.mark.parametrize("words", [("a", "b"), ("--topic", "a", "b"), ("a", "--channel=b"), ("--channel", "b", "a"), ("b", "--topic", "a"),
                                   ("--topic", "a", "--topic", "a", "--channel", "b")])
def test_names_are_words_or_options(words):
    values = parsed(NAMED, list(words))
    assert (values.text("TOPIC"), values.text("CHANNEL")) == ("a", "b")
    assert values.given("TOPIC") and values.given("CHANNEL")


@pytest.mark.parametrize("words, text", [
    ((), "TOPIC is missing"), (("--channel", "b"), "TOPIC is missing"), (("--topic", "a", "b", "c"), "unexpected word 'c'"),
    (("--topic", "a", "--topic", "b"), "--topic may be given only once"), (("",), "TOPIC is empty"), (("a", ""), "CHANNEL is empty"),
    (("--topic=",), "--topic is empty"), (("a", "--channel", ""), "--channel is empty"), (("a", "--rate", "3000000"), "from 0 to 2000000")])
def test_names_that_are_not_understood(words, text):
    assert text in refusal(NAMED, words)


@pytest.mark.parametrize("tool", LEAVES, ids=lambda tool: " ".join(tool.path))
def test_every_tool_takes_names_as_options(tool):
    """A word of one tool is an option of another: options work everywhere, and an empty name nowhere."""
    for kind in (Kind.TOPIC, Kind.CHANNEL):
        if kind not in {each.kind for each in (*tool.options, *tool.arguments)}:
            continue
        assert f"--{kind.name.lower()} {kind.name}" in help_of(tool)
        assert "is empty" in refusal(tool, [f"--{kind.name.lower()}", ""])


@pytest.mark.parametrize("tool", LEAVES, ids=lambda tool: " ".join(tool.path))
def test_every_tool_takes_topics_as_words(tool):
    """Tools that have a topic take it as the first word; if they take several, as words and options together."""
    names = [argument.kind for argument in tool.arguments]
    if tool.path[0] in ("diskqueue", "worker") or Kind.TOPIC not in {each.kind for each in (*tool.options, *tool.arguments)}:
        return      # diskqueue has paths, and a worker is named by its handler
    assert names[0] is Kind.TOPIC
    needed = ["x" if argument.kind is Kind.CHANNEL else "0" for argument in tool.arguments[1:] if argument.required]
    assert parsed(tool, ["orders", *needed]).texts("TOPIC") == ("orders",) or parsed(tool, ["orders", *needed]).text("TOPIC") == "orders"
    if tool.arguments[0].many:
        assert parsed(tool, ["a", "--topic", "b", "c", "--topic=d"]).texts("TOPIC") == ("b", "d", "a", "c")


def test_a_file_is_no_topic(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.txt").write_text("x\n")
    done = inside("pub", "orders.txt", "--nsqd", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (
        2, "nsqc pub: orders.txt is a file; the topic comes first: nsqc pub TOPIC orders.txt (see nsqc pub --help)\n")


@pytest.mark.parametrize("text, seconds", [("7d", 604800), ("1d12h", 129600), ("250ms", 0.25)])
def test_durations(text, seconds):
    assert parsed(TOOL, ["x", "--time", text]).seconds("time") == seconds


def test_words_that_begin_with_a_minus_sign():
    tool = Tool(("x",), "A tool.", lambda values: 0, arguments=(Argument("PLACE", "p", Kind.PLACE, option="to"),))
    assert parsed(tool, ["-1h"]).text("PLACE") == parsed(tool, ["--to", "-1h"]).text("PLACE") == "-1h"
    for words, text in ((["-h1"], "No such option"), (["-1w"], "PLACE: '-1w' is not beginning"), (["--to=x"], "--to: 'x' is not")):
        assert text in refusal(tool, words)


def test_what_is_said_twice_is_no_error():
    assert parsed(TOOL, ["x", "--time", "1s", "--time=1000ms", "--on", "--on"]).seconds("time") == 1.0


def test_without_stdin_nothing_is_published_and_that_is_said(tools):
    topic = tools.topic("c")
    done = tools.run("pub", "--topic", topic, input=None, stdin=None, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (1, b"nsqc pub: stdin: Bad file descriptor\nnsqc pub: 0 messages published\n")


def test_a_question_without_stdin_is_answered_no(tools):
    topic = tools.topic("c")
    done = tools.run("topic", "empty", topic, input=None, stdin=None, preexec_fn=lambda: os.close(0))
    assert done.returncode != 0 and b"Traceback" not in done.stderr and b"--yes" in done.stderr


def test_a_long_line_is_cut_and_has_nothing_that_a_terminal_obeys(capfd):
    output.note("\x1b[2J" + "h" * 100_000)
    line = capfd.readouterr().err
    assert line.startswith("\\x1b[2Jhhh") and line.endswith("h... (98004 more characters)\n") and len(line) < 2100


def test_a_full_stdout_has_its_name(tools):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "nsqc", "tail", "--help"], stdout=full, stderr=subprocess.PIPE, env=ENV, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (1, b"nsqc: stdout: No space left on device\n")


# ---------------------------------------------------------------------- consistent options


def test_tools_are_the_commands_that_say_so():
    assert {one.name for one in COMMANDS if one.tool} == set(ALL)
    assert all(tool.path[0] == name for name, each in ALL.items() for tool in leaves(each))


@pytest.mark.parametrize("tool", LEAVES, ids=lambda tool: " ".join(tool.path))
def test_every_help_has_examples_that_parse(tool):
    text = help_of(tool)
    assert text.startswith(f"Usage: {tool.words} ") and "\nExamples:\n" in text
    assert max(map(len, text.splitlines())) <= 110
    for option in tool.options:
        assert f"--{option.name}" in text and option.help[0] not in " ." and not option.help.endswith(".")
    for command, meaning in tool.examples:
        words = re.split(r" [|<>] ", command[command.index(tool.words) + len(tool.words):])[0]
        assert meaning
        parsed(tool, shlex.split(words))


def test_same_names_are_the_same_things():
    """A name has one kind, and accepts the same values, in every tool."""
    kinds: dict[str, set] = {}
    for tool in LEAVES:
        for option in tool.options:
            assert option.kind is not Kind.DURATION or option.default is None or type(option.default) is int, "nanoseconds"
            kinds.setdefault(option.name, set()).add((option.kind, option.many))
    several = {name: found for name, found in kinds.items() if len({kind for kind, _ in found}) > 1}
    assert several == {}


def test_a_start_imports_little(tools):
    code = ("import sys; sys.argv = ['nsqc', 'tail', '--topic', 'x', '--nsqd', '127.0.0.1:1']\nfrom nsqc.cli import main\n"
            "try: main()\nexcept SystemExit as end: print(end.code, *sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV, cwd=ROOT)
    status, *loaded = done.stdout.split()
    assert status == "3"
    assert not set(loaded) & {"rich", "asyncio", "uvloop", "httptools", "msgspec", "nsqc.daemon", "nsqc.options.declared"}


# ---------------------------------------------------------------------- nodes


def test_the_local_daemon_is_found_by_its_config(tmp_path, monkeypatch):
    monkeypatch.delenv("NSQC_CONFIG", raising=False)
    monkeypatch.setattr("nsqc.tools.cluster.USUAL_FILE", str(tmp_path / "none"))
    assert local_node("") == ("127.0.0.1:4150", "127.0.0.1:4151", "")
    path = tmp_path / "nsqc.cfg"
    path.write_text('tcp_address = "0.0.0.0:5150"\nhttp_address = "[::]:5151"\nhttps_address = "10.0.0.1:5152"\n')
    assert local_node(str(path)) == ("127.0.0.1:5150", "[::1]:5151", "")
    path.write_text('tcp_address = "/run/nsqc/tcp.sock"\nhttp_address = ":1"\n')
    monkeypatch.setenv("NSQC_CONFIG", str(path))
    assert local_node("") == ("/run/nsqc/tcp.sock", "127.0.0.1:1", "")
    for wrong in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(UsageError):
            local_node(wrong)


def test_a_config_without_a_usable_address(inside, tmp_path):
    config = tmp_path / "cfg"
    config.write_text('tcp_address = "nonsense"\n')
    done = inside("tail", "--topic", "x", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr.startswith(f"nsqc tail: config file {config}: 'nonsense' is not HOST:PORT")


def test_unix_sockets_and_a_config(daemon, tools, tmp_path):
    node = daemon(unix=True)
    config = tmp_path / "cfg"
    config.write_text(f'tcp_address = "{node.data_path}/tcp.sock"\nhttp_address = "{node.data_path}/http.sock"\n')
    env = {**ENV, "NSQC_CONFIG": str(config)}
    assert tools.run("pub", "--topic", "t", input="x\n", nodes=False, env=env).returncode == 0
    done = tools.run("tail", "--topic", "t", "-n", "1", "--channel", "c", "--config", str(config), nodes=False)
    assert (done.returncode, done.stdout) == (0, b"x\n")
    done = tools.run("tail", "--topic", "u", nodes=False, env=env)
    assert (done.returncode, done.stderr) == (4, b"nsqc tail: topic 'u' does not exist\n")


def test_lookup_servers_fail_over(tmp_path, daemon, tools):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        node = daemon(f"--lookupd-tcp-address=127.0.0.1:{server.tcp_port}", "--broadcast-address=127.0.0.1")
        nodes = ("--nsqlookupd", "127.0.0.1:1", "--nsqlookupd", f"127.0.0.1:{server.http_port}")
        assert tools.run("pub", "--topic", "orders", *nodes, input="x\n", nodes=False).returncode == 0
        assert node.stats("orders")["depth"] == 1
        done = tools.run("tail", "--topic", "orders", "--channel", "c", "-n", "1", *nodes, nodes=False)
        assert (done.returncode, done.stdout) == (0, b"x\n")
        done = tools.run("tail", "--topic", "order", *nodes, nodes=False)
        assert (done.returncode, done.stderr) == (4, b"nsqc tail: topic 'order' does not exist, did you mean 'orders'?\n")
        done = tools.run("stat", "--topic", "orders", "--channel", "c", "-n", "1", "--interval", "10ms", *nodes, nodes=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert tools.proposed(f"nsqc tail {' '.join(nodes)} --topic ") == ["orders"]
    finally:
        server.close()
    done = tools.run("tail", "--topic", "orders", "--nsqlookupd", "127.0.0.1:1", nodes=False)
    assert (done.returncode, done.stderr) == (3, b"nsqc tail: no nsqlookupd answers: 127.0.0.1:1: Connection refused\n")


@pytest.mark.parametrize("answer, text", [
    (b"\0\1\2garbage", "not an HTTP answer"), (b"", "closed"), (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not JSON"),
    (b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]', ""), (b'HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno', "500 no")])
def test_a_node_that_answers_garbage(tools, answer, text):
    with Answering(answer) as server:
        done = tools.run("stat", "--topic", "x", "--channel", "y", "--nsqlookupd", server.address, nodes=False)
        assert done.returncode in (3, 4) and text in done.stderr.decode()
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words, text", [
    (("--nsqd", "localhost"), "its port is missing"), (("--nsqlookupd", "a:1", "--nsqd", "a:1"), "give either --nsqd or --nsqlookupd"),
    (("--nsqd", "a:1", "--http", "a:1", "--http", "a:2"), "--http needs one address"), (("--tls-ca", "x"), "--tls-ca needs --tls"),
    (("--tls", "--tls-ca", "/nowhere"), "TLS: /nowhere: No such file"), (("--auth-secret", "@/nowhere"), "--auth-secret: /nowhere: No such file"),
    (("--deflate", "1", "--snappy"), "exclude each other")])
def test_nodes_that_are_not_understood(inside, words, text):
    done = inside("tail", "--topic", "x", *words)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1


def test_names_for_completion(tools):
    topic = tools.topic("first", "second")
    more = f"--nsqd {tools.tcp} --http {tools.http}"
    assert topic in tools.proposed(f"nsqc tail {more} --topic ") and topic in tools.proposed(f"nsqc peek {more} ")
    for line in (f"nsqc tail {more} --topic {topic} --channel ", f"nsqc peek {topic} {more} "):
        assert tools.proposed(line) == ["first", "second"]
    assert tools.proposed(f"nsqc peek {more} {topic} f") == ["first"]
    for wrong in ("nsqc tail --nsqd 127.0.0.1:1 --topic ", "nsqc tail --nsqd 'x --topic "):
        assert tools.proposed(wrong) == []


def test_help_into_a_pipe_that_is_closed(tools):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "nsqc", "tail", "--help"], stdout=write, stderr=subprocess.PIPE, timeout=WAIT_SECONDS,
                          env=ENV, cwd=ROOT)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


# ---------------------------------------------------------------------- stat


def test_stat(tools):
    topic = tools.topic("c")
    tools.publish(topic, b"a", b"b")
    done = tools.run("stat", "--topic", topic, "--channel", "c", "-n", "2", "--interval", "10ms")
    title, heads, *rows = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert title == "------rate------+----------------depth----------------+--------------metadata---------------"
    assert heads == "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients"
    assert rows == ["      0       0 |       2       2       0     0     0 |       0       0            2       0"] * 2
    running = tools.start("stat", "--topic", topic, "--channel", "c", "--json", "--interval", "10ms").says(b'"depth": 2')
    tools.publish(topic, b"c")
    running.says(b'"depth": 3')
    assert running.stop(signal.SIGINT) == 130
    assert re.search(rb'"ingress": [1-9]', running.out)
    assert running.err == ""


def test_stat_of_what_does_not_exist(tools):
    topic = tools.topic("billing")
    done = tools.run("stat", "--topic", topic, "--channel", "biling")
    assert (done.returncode, done.stderr.decode()) == (
        4, f"nsqc stat: channel 'biling' does not exist in topic {topic!r}, did you mean 'billing'?\n")
